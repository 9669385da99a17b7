"""What drafts are worth: the same requests with and without them, in turn, in one run.

Each round decodes every prompt once per arm, the arms' order turning from round to round, all on engines that stay open, so
that whatever else the machine does falls on all arms alike.  A ratio is paired: seconds without over seconds with drafts, of
the same prompts in the same round; its spread is over rounds.  Answers must be equal, or the figures mean nothing.
Times are those of decoding, drafting included; prompts are read outside.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from strata.batch.engine import Engine
from strata.batch.requests import Request
from strata.batch.settings import EngineSettings
from strata.bench.spread import Spread
from strata.errors import StrataError
from strata.model.model import Model

PLAIN = "without drafts"
ALL = "all"


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """A prompt of a kind."""

    kind: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Gain:
    """One arm on one kind of prompts: how many times as fast as without, milliseconds a token, tokens per window, counters."""

    arm: str
    kind: str
    ratio: Spread
    ms_per_token: Spread
    tokens_per_window: float
    counters: Mapping[str, int]


def solo_arms(settings: EngineSettings) -> dict[str, EngineSettings]:
    """Return the arms of a request alone; the first is without drafts."""
    plain = replace(settings, mtp=False, suffix_draft=0, batch_mtp=False, batch=1, batch_groups=1)
    suffix = settings.suffix_draft or 3
    return {
        PLAIN: plain,
        "--mtp": replace(plain, mtp=True),
        "--mtp --spec 8": replace(plain, mtp=True, spec=8),
        f"--suffix-draft {suffix}": replace(plain, suffix_draft=suffix, spec=8),
        f"--mtp --suffix-draft {suffix}": replace(plain, mtp=True, suffix_draft=suffix, spec=8),
    }


def batch_arms(settings: EngineSettings, slots: int) -> dict[str, EngineSettings]:
    """Return the arms of `slots` requests at once; the first is without proposals."""
    plain = replace(settings, mtp=False, suffix_draft=0, batch_mtp=False, batch=slots, batch_groups=1)
    return {PLAIN: plain, "--batch-mtp": replace(plain, mtp=True, batch_mtp=True)}


def measure(
    model: Model, arms: Mapping[str, EngineSettings], prompts: Sequence[BenchPrompt], n_new: int, n_rounds: int, together: int,
    tell: Callable[[str], None],
) -> tuple[Gain, ...]:
    """Measure the arms on the prompts, `together` at a time; one round before the first is thrown away.

    Raises StrataError where two arms answer differently.
    """
    groups = [prompts[at : at + together] for at in range(0, len(prompts) - together + 1, together)]
    rounds: list[dict[tuple[str, str], _Sum]] = []
    with ExitStack() as stack:
        engines = {name: stack.enter_context(Engine(model, settings)) for name, settings in arms.items()}
        for number in range(n_rounds + 1):
            found: dict[tuple[str, str], _Sum] = defaultdict(_Sum)
            for index, group in enumerate(groups):
                tell(f"round {number} of {n_rounds}, {index + 1} of {len(groups)} ({', '.join(arms)})")
                _one_group(engines, _turned(list(arms), number + index), group, n_new, found)
            rounds.append(found)
    kinds = dict.fromkeys([ALL, *(group[0].kind for group in groups)]) if together == 1 else [ALL]
    return tuple(_gain(arm, kind, rounds[1:]) for arm in arms for kind in kinds)


class _Sum:
    """Seconds, tokens and counters of one arm over some prompts."""

    def __init__(self) -> None:
        self.seconds, self.n_tokens, self.counters = 0.0, 0, Counter()


def _turned(names: list[str], by: int) -> list[str]:
    return names[by % len(names) :] + names[: by % len(names)]


def _one_group(engines: Mapping[str, Engine], order: Sequence[str], group: Sequence[BenchPrompt], n_new: int, found) -> None:
    answers = {}
    for name in order:
        batch = engines[name].generate([Request(prompt.ids, n_new) for prompt in group])
        answers[name] = [[(e.pick, e.row.digest) for e in answer.emitted] for answer in batch.answers]
        for kind in (ALL, group[0].kind):
            total = found[name, kind]
            total.seconds += batch.decode_seconds
            total.n_tokens += len(group) * (n_new - 1)
            total.counters.update(batch.counters)
    for name in order:
        if answers[name] != answers[PLAIN]:
            raise StrataError(f"arm {name}", "its answers are not those without drafts", "locate the difference before timing anything")


def _gain(arm: str, kind: str, rounds) -> Gain:
    sums = [found[arm, kind] for found in rounds]
    ratios = [found[PLAIN, kind].seconds / found[arm, kind].seconds for found in rounds]
    counters = sums[0].counters
    return Gain(
        arm, kind, Spread.of(ratios), Spread.of([1e3 * s.seconds / s.n_tokens for s in sums]),
        sums[0].n_tokens / max(1, counters["slot_windows"]), dict(counters),
    )
