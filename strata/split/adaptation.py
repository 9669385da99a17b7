"""Rounds of the adaptive tier: after every so many decoded windows, experts change places on every device.

A round chooses (`strata.experts.adaptive`), makes the victims absent at once, copies the newcomers on a helper thread, and
makes each resident when its bytes have landed.

    blocking   a round begins after a window's commit and runs beside the drafts; the next window waits for what has not landed
    async      a round moves one step per decoded window - choose, copy, land - and never holds a window up: what has not
               landed when its turn comes is asked for again after the next window

Every device has its own usage, its own choice and its own `adapt_swaps`.  `settle` ends a round that is under way; it is called before a new request is read, so that rounds stand still while prompts
are.  One thread calls everything here; only bytes are copied on the helper.  Does not know: what is computed.
"""

import logging
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from strata.experts.adaptive import choose_swaps
from strata.experts.residency import ABSENT
from strata.experts.usage import DECODED
from strata.split.tiers import DeviceTier

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """An expert on its way into a slot; `goes` is the one that left it, or `ABSENT`."""

    tier: DeviceTier
    layer: int
    comes: int
    goes: int
    slot: int


class DeviceUsage:
    """Usage of one device's experts, float64 [layers, experts], from the counts that executors add to."""

    def __init__(self, tier: DeviceTier, counts: np.ndarray) -> None:
        self.tier, self._counts = tier, counts[DECODED]
        self.usage = np.zeros(self._counts.shape, np.float64)
        self._seen = self._counts.copy()
        self._own = np.zeros((self._counts.shape[0], 1), np.bool_)
        self._own[list(tier.layers)] = True

    def take(self) -> None:
        """Add what was routed since the last time."""
        now = self._counts.copy()
        self.usage += np.where(self._own, now - self._seen, 0)
        self._seen = now


class Adaptation:
    """The rounds of all devices of an engine; `settings` has adapt_every, adapt_swaps, adapt_decay, adapt_min_gain, adapt_async."""

    def __init__(self, tiers: Sequence[DeviceTier], counts: np.ndarray, settings) -> None:
        self._settings, self._usages = settings, [DeviceUsage(tier, counts) for tier in tiers]
        self._helper = ThreadPoolExecutor(1, "strata-tier")
        self._n_windows, self._chosen = 0, []
        self._moves: list[Move] = []
        self._copies: Future | None = None
        self.counters: Counter = Counter()
        self.wait_seconds = 0.0

    def begin_run(self) -> None:
        """Forget what was counted before; usage stays."""
        self.counters.clear()
        self.wait_seconds = 0.0

    def window_decoded(self) -> None:
        """Take note of a decoded window that was committed; begin a round, or move one on."""
        started = time.perf_counter()
        self._n_windows += 1
        if self._settings.adapt_async:
            self._step()
        elif self._n_windows >= self._settings.adapt_every:
            self._choose()
            self._copy()
        self.wait_seconds += time.perf_counter() - started

    def before_window(self) -> None:
        """Wait for what must have landed before a window is computed."""
        if self._copies is not None and not self._settings.adapt_async:
            self.settle()

    def settle(self) -> None:
        """End a round that is under way."""
        started = time.perf_counter()
        if self._chosen:
            self._copy()
        if self._copies is not None:
            self._land()
        self.wait_seconds += time.perf_counter() - started

    def close(self) -> None:
        """Let the helper finish and stop it."""
        self._helper.shutdown()

    # ---- steps

    def _step(self) -> None:
        if self._copies is not None:
            if self._copies.done():
                self._land()
            else:
                self.counters["adapt_late_steps"] += 1
        elif self._chosen:
            self._copy()
        elif self._n_windows >= self._settings.adapt_every:
            self._choose()

    def _choose(self) -> None:
        """Choose the swaps of every device."""
        settings, self._n_windows = self._settings, 0
        self.counters["adapt_rounds"] += 1
        for item in self._usages:
            item.take()
            table = item.tier.residency
            if not item.tier.holds_all:
                swaps = choose_swaps(item.usage, table.slot_of, len(table.free_slots()), settings.adapt_min_gain, settings.adapt_swaps)
                self._chosen += [(item.tier, *swap) for swap in swaps.tolist()]
            item.usage *= settings.adapt_decay

    def _copy(self) -> None:
        """Make the victims absent and let the helper copy the newcomers."""
        self._moves = [self._move(*swap) for swap in self._chosen]
        self._chosen = []
        if self._moves:
            self._copies = self._helper.submit(copy_all, self._moves)

    def _move(self, tier: DeviceTier, layer: int, comes: int, goes: int) -> Move:
        table = tier.residency
        if goes == ABSENT:
            return Move(tier, layer, comes, goes, table.reserve(int(table.free_slots()[0])))
        self.counters["evictions"] += 1
        return Move(tier, layer, comes, goes, table.vacate(layer, goes))

    def _land(self) -> None:
        """Wait for the copies and make the newcomers resident; a round whose copies failed is given up, its slots are free."""
        copies, self._copies = self._copies, None
        moves, self._moves = self._moves, []
        try:
            saved = copies.result()
        except Exception as error:
            LOG.warning("a round of swaps was given up: %s; its %d slots stay free until the next", error, len(moves))
            self.counters["adapt_failed_rounds"] += 1
            for move in moves:
                move.tier.residency.release(move.slot)
            return
        for move, blobs in zip(moves, saved, strict=True):
            move.tier.residency.settle(move.layer, move.comes, move.slot)
            if blobs is not None:
                move.tier.exchange(move.layer, move.comes, move.goes, blobs)
        self.counters["adapt_swaps"] += len(moves)


def copy_all(moves: Sequence[Move]) -> list[dict[str, np.ndarray] | None]:
    """Copy every newcomer into its slot; return the blobs that lay there, where the arena may want them."""
    saved = []
    for move in moves:
        wants_back = move.goes != ABSENT and move.tier.arena.mode == "resident"
        saved.append(move.tier.memory.saved(move.layer, move.slot) if wants_back else None)
        move.tier.memory.load(move.layer, move.comes, move.slot)
    return saved
