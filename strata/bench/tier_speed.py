"""What adapting is worth: the same requests with the expert tier's rounds in steps, blocking, frozen and off, in one run.

All arms hold the same share of the experts.  `frozen` starts from the profile that these very prompts route to, learned in
a run before anything is timed; the others from the profile beside the model.  Each round decodes every prompt once per arm,
the arms' order turning, on engines that stay open, so that what an arm learned stays.  Figures are of rounds after the
first; answers must be equal.  Does not know: how results are shown.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from strata.batch.engine import Engine
from strata.batch.requests import Request
from strata.batch.settings import EngineSettings
from strata.batch.tier_line import served_share
from strata.bench.spread import Spread
from strata.errors import StrataError
from strata.model.model import Model

ASYNC, BLOCKING, FROZEN, OFF = "adaptive, async", "adaptive, blocking", "frozen, learned profile", "off"


@dataclass(frozen=True, slots=True)
class TierFigures:
    """One arm: tokens per second, milliseconds and adapt wait per window, shares of routed entries served, counters; `note`
    says what ran otherwise than the arm's name."""

    arm: str
    tokens_per_second: Spread
    window_ms: Spread
    adapt_wait_ms: Spread
    vram: Spread
    pcie: float
    cpu: float
    swaps_per_window: float
    note: str


def tier_arms(settings: EngineSettings, n_slots: int, learned: str) -> dict[str, EngineSettings]:
    """Return the arms; `n_slots` experts are resident, `learned` is the file of the profile that the prompts route to."""
    base = replace(settings, expert_cache=n_slots, expert_profile_save="")
    return {
        ASYNC: replace(base, adapt_async=True, resident_experts=True),
        BLOCKING: replace(base, adapt_async=False),
        FROZEN: replace(base, adapt_every=0, adapt_async=False, expert_profile=learned),
        OFF: replace(base, adapt_every=0, adapt_async=False),
    }


def learn(model: Model, settings: EngineSettings, prompts: Sequence[tuple[int, ...]], n_new: int, path: str) -> None:
    """Write the profile that the prompts and their answers route to; a tier as large as can be, as a card counts only where it has one."""
    with Engine(model, replace(settings, expert_cache=0, adapt_every=0, adapt_async=False, expert_profile_save=path)) as engine:
        engine.generate([Request(prompt, n_new) for prompt in prompts])


def measure(
    model: Model, arms: Mapping[str, EngineSettings], prompts: Sequence[tuple[int, ...]], n_new: int, n_rounds: int, tell: Callable[[str], None]
) -> tuple[TierFigures, ...]:
    """Measure the arms; one round before the first is thrown away.  Raises StrataError where two arms answer differently."""
    requests = [Request(prompt, n_new) for prompt in prompts]
    rounds: list[dict[str, tuple[float, Counter]]] = []
    with ExitStack() as stack:
        engines = {name: stack.enter_context(Engine(model, settings)) for name, settings in arms.items()}
        for number in range(n_rounds + 1):
            tell(f"round {number} of {n_rounds} ({', '.join(arms)})")
            rounds.append(_one_round(engines, number, requests))
        notes = {name: "; ".join(engine.resolved.notes) for name, engine in engines.items()}
    return tuple(_figures(name, [found[name] for found in rounds[1:]], notes[name]) for name in arms)


def _one_round(engines: Mapping[str, Engine], number: int, requests: Sequence[Request]) -> dict[str, tuple[float, Counter]]:
    names = list(engines)
    found, answers = {}, {}
    for name in names[number % len(names) :] + names[: number % len(names)]:
        batch = engines[name].generate(requests)
        found[name] = batch.decode_seconds, Counter(batch.counters)
        answers[name] = [[(e.pick, e.row.digest) for e in answer.emitted] for answer in batch.answers]
    for name in names:
        if answers[name] != answers[names[0]]:
            raise StrataError(f"arm {name}", f"its answers are not those of {names[0]}", "use --rounding canonical, or locate the difference first")
    return found


def _figures(arm: str, rounds: Sequence[tuple[float, Counter]], note: str) -> TierFigures:
    def each(figure: Callable[[float, Counter], float]) -> list[float]:
        return [figure(seconds, counters) for seconds, counters in rounds]

    def mean(figure: Callable[[float, Counter], float]) -> float:
        return sum(each(figure)) / len(rounds)

    return TierFigures(
        arm,
        Spread.of(each(lambda seconds, c: c["slot_windows"] / seconds)),
        Spread.of(each(lambda seconds, c: 1e3 * seconds / c["decode_windows"])),
        Spread.of(each(lambda seconds, c: c["adapt_wait_us"] / 1e3 / c["decode_windows"])),
        Spread.of(each(lambda seconds, c: served_share(c, "vram"))),
        mean(lambda seconds, c: served_share(c, "pcie")),
        mean(lambda seconds, c: served_share(c, "cpu")),
        mean(lambda seconds, c: c["adapt_swaps"] / c["decode_windows"]),
        note,
    )
