"""What is asked for and what comes back: requests, answers, and the record of each emitted token.

Imports only nouns.  Does not know: slots, windows, devices.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from strata.windows.picks import LogitRow

DraftSource = Callable[[Sequence[int]], Sequence[int]]
"""From the tokens emitted so far to proposals for the next ones; may return none."""


@dataclass(frozen=True, slots=True)
class Request:
    """One conversation to continue greedily.

    `prompt` token ids; at most `max_new` tokens are emitted.  `stop_tokens` end it (the token is emitted).  `arrive_after`
    windows must have been decoded before it may be admitted: late arrivals, repeatable.  `forced` tokens are fed in place
    of the picks (teacher forcing; the picks are recorded).  `drafts` proposes tokens for verify windows of up to
    `window_rows` rows.
    """

    prompt: tuple[int, ...]
    max_new: int
    stop_tokens: frozenset[int] = frozenset()
    arrive_after: int = 0
    forced: tuple[int, ...] | None = None
    drafts: DraftSource | None = None
    window_rows: int = 8


@dataclass(frozen=True, slots=True)
class Emitted:
    """One emitted token: the pick at `position` (of the row it was picked from), and what its logit row said."""

    position: int
    pick: int
    row: LogitRow


@dataclass(frozen=True, slots=True)
class Step:
    """How far a request has come: its number, its positions read or held so far, the tokens just emitted."""

    request: int
    position: int
    emitted: tuple[Emitted, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request got: its tokens with their rows, why it ended (`length`, `stop`, `error`), and its error's text."""

    emitted: tuple[Emitted, ...]
    finish: str
    error: str = ""

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
