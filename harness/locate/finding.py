"""What a search for the first difference found: plain values, ready for a report or a JSON document.

    located    the first operation (or state) whose inputs are equal and which differs; exit code 1
    differs    answers differ, but no operation does: the fault lies behind the head; exit code 1
    equal      every record compared is equal; exit code 0
    unjudged   the search could not decide, `reason` says why; exit code 2

Does not know: how it was found.
"""

from dataclasses import dataclass

from harness.comparison import Difference

LOCATED, DIFFERS, EQUAL, UNJUDGED = "located", "differs", "equal", "unjudged"
EXIT_CODES = {LOCATED: 1, DIFFERS: 1, EQUAL: 0, UNJUDGED: 2}

OPERATION = "operation"
STATE = "state"
HAND_OFF = "hand-off"
RACE = "race or alias"
KINDS = {
    OPERATION: "its inputs are equal and what it gives differs",
    STATE: "what was computed is equal and what was stored differs",
    HAND_OFF: "what was sent is equal and what was received differs",
    RACE: "what was stored is equal and what was read later differs: something wrote in between, or another place was read",
}


@dataclass(frozen=True, slots=True)
class Company:
    """One segment of a window: its first row and how many, whose, from which position, the slot it is served in."""

    row: int
    n_rows: int
    request: int
    position: int
    slot: int


@dataclass(frozen=True, slots=True)
class Sight:
    """Where one arm computed the record: device and stage, the stage's window number, the row of how many, all segments."""

    device: str
    stage: int
    layers: str
    window: int
    row: int
    n_rows: int
    slot: int
    kept: bool
    company: tuple[Company, ...]


@dataclass(frozen=True, slots=True)
class InputState:
    """One input of the operation: `equal`, `differs`, or `not recorded` (in an arm that has no such record)."""

    point: str
    words: str
    state: str
    n_records: int


@dataclass(frozen=True, slots=True)
class ElementDifference:
    """The first element that differs: where in the record, both values and their bits, the distance in last places."""

    index: tuple[int, ...]
    cell: int | None
    kind: str
    left: str
    right: str
    left_bits: str
    right_bits: str
    ulps: int
    n_differing: int
    n_elements: int


@dataclass(frozen=True, slots=True)
class Cause:
    """The first difference in order of dataflow.

    `sides` is `both` where the arms' records differ; `broken_in` names the arms in which a copy is not equal to its origin
    (`origin`, at `origin_position`).  `part` is an expert's id or a tail line's age, None where there is neither.  `unseen` are
    the operations between the point and the last equal ones that an arm did not show, in words: they may be at fault as well.
    """

    kind: str
    point: str
    words: str
    source: str
    request: int
    label: str
    position: int
    layer: int
    part: int | None
    part_words: str
    sides: str
    broken_in: tuple[str, ...]
    origin: str
    origin_position: int | None
    left: Sight | None
    right: Sight | None
    inputs: tuple[InputState, ...]
    element: ElementDifference | None
    unseen: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PassNote:
    """One run of both arms: what was recorded, and what it showed."""

    level: int
    what: str
    n_compared: int
    n_differing: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of a search: `tokens` says how answers differ, `requests` which ones have a record that does."""

    verdict: str
    reason: str
    cause: Cause | None
    tokens: tuple[Difference, ...]
    requests: tuple[int, ...]
    passes: tuple[PassNote, ...]
    planted: str = ""
    n_planted: int = 0

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]
