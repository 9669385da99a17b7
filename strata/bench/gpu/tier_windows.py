"""Windows of a card with a tier, measured by the wall clock: as they are, with a pool that answers at once, and with no meeting.

Every window has other tokens, so that the pool reads other experts.  The second figure has all meetings and no work in them; the
third has the table say that every expert is resident, so that the card reads them all and never meets the host.
Does not know: tables.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from strata.bench.gpu.floors import Floor, expert_bytes, floor_of, load_of
from strata.bench.gpu.tiered import Aliased
from strata.bench.gpu.windows import decode_window, prompt_window
from strata.bench.spread import Spread
from strata.cuda.memory.workspace import PLACES
from strata.cuda.stage.executor import CudaExecutor
from strata.experts.residency import ABSENT
from strata.experts.usage import DECODED
from strata.model.weights import Weights
from strata.rows import Window
from strata.split.card_tier import CardTier
from strata.windows.stage_pass import pass_blocks

WARM_UP, PER_ROUND = 2, 8


@dataclass(frozen=True, slots=True)
class TierRates:
    """Bytes per second: of the card's memory (copies, read plus written), of RAM by the pool's threads, and of the link (0: not measured)."""

    card: float
    ram: float
    link: float


@dataclass(frozen=True, slots=True)
class TierSpeed:
    """A window shape: milliseconds, and per window meetings and distinct experts by who computes them.

    `pool_ms` are spent in the pool's jobs, `reach_ms` waiting for the card's messages; `floor` are the card's bytes.
    """

    n_rows: int
    position: int
    n_windows: int
    wall_ms: Spread
    unworked_ms: Spread
    unmet_ms: Spread
    pool_ms: float
    reach_ms: float
    meetings: float
    cached: float
    fetched: float
    pooled: float
    floor: Floor
    expert_bytes: int

    @property
    def tokens_per_second(self) -> float:
        return 1e3 * self.n_rows / self.wall_ms.median

    @property
    def ram_bytes(self) -> float:
        return self.pooled * self.expert_bytes

    @property
    def link_bytes(self) -> float:
        return self.fetched * self.expert_bytes

    @property
    def hits(self) -> float:
        """Share of the distinct experts that are resident."""
        return self.cached / max(1e-9, self.cached + self.fetched + self.pooled)

    @property
    def pool_rate(self) -> float:
        """Bytes per second that the pool's jobs reach, everything in them counted."""
        return 1e3 * self.ram_bytes / self.pool_ms if self.pool_ms else 0.0

    def parts_ms(self, rates: TierRates) -> tuple[float, float, float]:
        """Milliseconds that the bytes of card, RAM and link need."""
        link = 1e3 * self.link_bytes / rates.link if rates.link else 0.0
        return 1e3 * self.floor.total / rates.card, 1e3 * self.ram_bytes / rates.ram, link

    def floor_ms(self, rates: TierRates) -> float:
        """The largest of the three, as if they had nothing to wait for."""
        return max(self.parts_ms(rates))

    def chained_ms(self, rates: TierRates) -> float:
        """The same where a layer's experts wait for what comes before them: the largest of experts' parts, after the card's others."""
        card, ram, link = self.parts_ms(rates)
        experts = 1e3 * self.floor.experts / rates.card
        return card - experts + max(experts, ram, link)

    def meeting_us(self, rates: TierRates) -> float:
        """What a meeting costs without work: unworked over unmet windows, less the time of the experts that only the latter read."""
        spared = 1e3 * (self.ram_bytes + self.link_bytes) / rates.card
        return 1e3 * (self.unworked_ms.median - (self.unmet_ms.median - spared)) / self.meetings if self.meetings else 0.0


class Counts:
    """Distinct experts of a window's layers, by who computed them, from what was routed."""

    def __init__(self, routed: np.ndarray, tier: CardTier) -> None:
        self._routed, self._tier, self._before = routed[DECODED], tier, routed[DECODED].copy()
        self.cached = self.missed = 0

    def take(self) -> None:
        """Add the window that ran since the last call."""
        used = self._routed != self._before
        resident = self._tier.residency.slot_of != ABSENT
        self.cached += int((used & resident).sum())
        self.missed += int((used & ~resident).sum())
        self._before = self._routed.copy()


def windows_for(n_rows: int, n_windows: int, position: int, vocabulary: int, seed: int) -> list[Window]:
    """Return windows of one shape with tokens of their own."""
    make = decode_window if n_rows <= PLACES else prompt_window
    return [make(n_rows, position, vocabulary, seed + 1000 * i) for i in range(n_windows)]


def measure(executor: CudaExecutor, tier: CardTier, weights: Weights, n_rows: int, position: int, seed: int, n_rounds: int) -> TierSpeed:
    """Measure one window shape of an executor whose tier this is; `executor.routed` must be counted."""
    config, jobs = executor.config, tier.jobs
    n = n_rounds * (PER_ROUND if n_rows <= PLACES else 1)
    windows = windows_for(n_rows, WARM_UP + n, position, config.vocabulary, seed)
    for window in windows[:WARM_UP]:
        executor.run_window(window, None, pass_blocks)
    windows, counts = windows[WARM_UP:], Counts(executor.routed, tier)
    jobs.clear()
    reach = tier.reach.seconds
    walls = _timed(executor, windows, counts.take)
    meetings, pooled, pool_ms = jobs.n_calls / n, jobs.n_experts / n, 1e3 * jobs.seconds / n
    reach_ms = 1e3 * (tier.reach.seconds - reach) / n
    jobs.is_idle = True
    unworked = _timed(executor, windows)
    jobs.is_idle = False
    with Aliased(tier):
        executor.run_window(windows[0], None, pass_blocks)
        unmet = _timed(executor, windows)
    cached = counts.cached / n
    fetched = counts.missed / n - pooled
    segments = [(s.start, len(s.tokens)) for s in windows[0].segments]
    load = load_of(config, segments, len(windows[0].logit_rows), cached + fetched)
    return TierSpeed(
        n_rows, position, n, Spread.of(walls), Spread.of(unworked), Spread.of(unmet), pool_ms, reach_ms, meetings, cached, fetched, pooled,
        floor_of(config, weights, load), expert_bytes(weights),
    )


def _timed(executor: CudaExecutor, windows: Sequence[Window], after: Callable[[], None] = lambda: None) -> list[float]:
    """Return each window's milliseconds by the wall clock; `after` is called between them."""
    found = []
    for window in windows:
        started = time.perf_counter()
        executor.run_window(window, None, pass_blocks)
        found.append(1e3 * (time.perf_counter() - started))
        after()
    return found
