"""What is asked for and what comes back: requests, answers, and the record of each emitted token.

Imports only nouns.  Does not know: slots, windows, devices.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from strata.sampling.settings import Sampling
from strata.windows.picks import LogitRow

DraftSource = Callable[[Sequence[int]], Sequence[int]]
"""From the tokens emitted so far to proposals for the next ones; may return none."""


@dataclass(frozen=True, slots=True)
class Request:
    """One conversation to continue.

    `prompt` token ids; at most `max_new` tokens are emitted.  `stop_tokens` end it (the token is emitted).  `arrive_after`
    windows must have been decoded before it may be admitted: late arrivals, repeatable.  `forced` tokens are fed in place
    of the picks (teacher forcing; the picks are recorded; where they end, picks are fed).  `sampling` says how tokens are
    chosen; greedily by default.  `drafts` proposes tokens for verify windows of up to `window_rows` rows, in place of the
    engine's own drafts.  `spec_min_p` overrides the engine's least probability of a draft.  `pcie_frac` overrides the share of missed
    experts that devices fetch, in windows whose requests all name the same one.
    """

    prompt: tuple[int, ...]
    max_new: int
    stop_tokens: frozenset[int] = frozenset()
    arrive_after: int = 0
    forced: tuple[int, ...] | None = None
    drafts: DraftSource | None = None
    window_rows: int = 8
    sampling: Sampling = Sampling()
    spec_min_p: float | None = None
    pcie_frac: float | None = None


@dataclass(frozen=True, slots=True)
class Emitted:
    """One emitted token: the pick at `position` (of the row it was picked from), and what its logit row said.

    `logprob` and `alternatives` (id, log probability; best first) are there where the request asks for them.
    """

    position: int
    pick: int
    row: LogitRow
    logprob: float | None = None
    alternatives: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """How far a request has come: its number, its positions read or held so far, the tokens just emitted."""

    request: int
    position: int
    emitted: tuple[Emitted, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request got: its tokens with their rows, why it ended (`length`, `stop`, `error`), and its error's text.

    `seed` is the one that its draws were made with, given or taken from the clock; 0 where nothing was drawn.
    """

    emitted: tuple[Emitted, ...]
    finish: str
    error: str = ""
    seed: int = 0

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(e.pick for e in self.emitted)


@dataclass(frozen=True, slots=True)
class Batch:
    """Answers in the order of the requests, the counters of the run, and its seconds."""

    answers: tuple[Answer, ...]
    counters: Mapping[str, int]
    read_seconds: float
    decode_seconds: float
    notes: tuple[str, ...] = field(default=())
