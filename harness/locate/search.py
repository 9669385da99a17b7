"""The search for the first operation whose inputs are equal and whose output differs.

    pass 1   one residual per layer and the logits: the first (request, position, layer) that differs
    pass 2   every operation there; without any difference in pass 1: every operation everywhere
    pass 3   where the first difference may come from state: every operation of that layer, at all positions up to there
    pass 4   the elements of what was found

The first event in order of dataflow is the cause of all that follow it, because what it is made from comes before it, was
recorded and is equal (`harness.ledger.join`).  Does not know: how arms run, reports.
"""

from harness.comparison import Comparison, compare
from harness.ledger.filters import Only
from harness.ledger.join import BOTH, Events
from harness.ledger.points import RESIDUALS, TOKENS, TOP, Point, in_words
from harness.ledger.records import NO_PART
from harness.locate.elements import first_difference
from harness.locate.finding import (
    DIFFERS, EQUAL, HAND_OFF, LOCATED, OPERATION, RACE, STATE, UNJUDGED, Cause, ElementDifference, Finding, PassNote, Sight,
)
from harness.locate.passes import Pass, Passes
from harness.locate.sights import Inputs, sight_of
from harness.locate.spots import Spot, copy_of, first_spot, origin_of, spot_of
from harness.locate.unseen import devices_not_showing, unseen_before
from strata.split.stages import RECEIVED

RESIDUAL_LEVEL, OPERATION_LEVEL, ELEMENT_LEVEL = 1, 2, 3
WITHOUT_ELEMENTS = (TOKENS, "gdn.memory.after")
LATE_ORIGINS = {"gdn.memory.after": "gdn.memory.stored"}
"""Where an origin is known by hashes only, the point whose elements stand for it."""


class Search:
    """Runs passes over a case until the cause is found."""

    def __init__(self, passes: Passes, deep: bool = False) -> None:
        self._passes, self._case = passes, passes.case
        self._deep = deep
        self._done: list[Pass] = []
        self._notes: list[PassNote] = []

    def find(self) -> Finding:
        """Return the finding."""
        first = self._run(OPERATION_LEVEL if self._deep else RESIDUAL_LEVEL, Only(), "everything" if self._deep else "residuals and logits")
        answers = compare(first.left.answers, first.right.answers, [item.label for item in self._case.workload.items])
        spot = first_spot(first.events)
        if spot is None and not self._deep and answers.is_exact:
            first = self._run(OPERATION_LEVEL, Only(), "everything, since no residual differs")
            spot = first_spot(first.events)
        if self._passes.plant is not None and not self._passes.n_flips:
            return self._finding(UNJUDGED, f"the planted fault never met a record: {self._passes.plant.text()}", None, answers, ())
        if spot is None:
            return self._without_cause(answers)
        requests = tuple(sorted(set(first.events.request.tolist())))
        if first.level == RESIDUAL_LEVEL and not _is_final(spot):
            spot = self._narrow(spot)
        if spot is None:
            return self._finding(UNJUDGED, self._not_again(), None, answers, requests)
        cause = self._cause(spot)
        return self._finding(LOCATED, self._reason(cause), cause, answers, requests)

    def _cards(self) -> tuple[str, ...]:
        events = self._done[-1].events
        return devices_not_showing(events.left, events.right)

    def _reason(self, cause: Cause) -> str:
        if not cause.unseen:
            return cause.words
        who = " and ".join(self._cards()) or "an arm"
        return f"{cause.words}, or {', '.join(cause.unseen)}, which {who} does not show"

    def _not_again(self) -> str:
        reason = "what differed in the first pass was equal in a later one: the runs do not repeat, as with a race"
        if not self._cards():
            return reason
        return f"{reason}, or a launch that joins operations is at fault, since later passes run them one by one on {' and '.join(self._cards())}"

    # ---- passes

    def _run(self, level: int, only: Only, what: str) -> Pass:
        done = self._passes.run(level, only)
        self._done.append(done)
        self._notes.append(PassNote(level, what, done.events.n_compared, len(done.events), done.seconds))
        return done

    def _narrow(self, spot: Spot) -> Spot | None:
        """Look at every operation at a residual's or a logit row's place; then, for state, at the positions before."""
        where = f"request {spot.request}, {'head' if spot.layer == TOP else f'layer {spot.layer}'}"
        layers = frozenset({spot.layer})
        only = Only(frozenset({spot.request}), (spot.position, spot.position), layers)
        found = first_spot(self._run(OPERATION_LEVEL, only, f"{where}, position {spot.position}").events)
        if found is None or not found.point.looks_back or spot.position == 0:
            return found
        only = Only(only.requests, (0, spot.position), layers | {TOP})
        return first_spot(self._run(OPERATION_LEVEL, only, f"{where}, positions 0 to {spot.position}").events)

    # ---- what was found

    def _cause(self, spot: Spot) -> Cause:
        events = self._done[-1].events
        record, records = int(events.b[spot.event]), copy_of(events, spot.event)
        inputs = Inputs([(done.events.left, done.events.right) for done in reversed(self._done)])
        origin, origin_position = _origin(events, spot)
        return Cause(
            kind=_kind(spot.point),
            point=spot.point.name,
            words=in_words(spot.point.name, spot.layer),
            source=spot.point.source,
            request=spot.request,
            label=self._case.workload.items[spot.request].label,
            position=spot.position,
            layer=spot.layer,
            part=None if spot.part == NO_PART else spot.part,
            part_words=_part_words(spot.point, spot.part),
            sides=spot.sides,
            broken_in=spot.broken_in,
            origin=origin,
            origin_position=origin_position,
            left=self._sight(events, spot, left=True),
            right=self._sight(events, spot, left=False),
            inputs=inputs.states(spot.point, spot.layer, records, record),
            element=self._element(spot, origin, origin_position),
            unseen=unseen_before(spot.point, spot.layer, events.left, events.right) if spot.sides == BOTH else (),
        )

    def _sight(self, events: Events, spot: Spot, left: bool) -> Sight | None:
        if spot.sides == BOTH:
            return sight_of(events.left, int(events.a[spot.event])) if left else sight_of(events.right, int(events.b[spot.event]))
        if (spot.sides == "left") is not left:
            return None
        return sight_of(copy_of(events, spot.event), int(events.b[spot.event]))

    def _element(self, spot: Spot, origin: str, origin_position: int | None) -> ElementDifference | None:
        """Run once more for the elements of the records that differ."""
        if spot.point.name in WITHOUT_ELEMENTS:
            return None
        names = {spot.point.name} | ({origin, LATE_ORIGINS.get(origin, origin)} if spot.sides != BOTH else set())
        first = spot.position if origin_position is None else origin_position
        layers = {spot.layer, spot.layer - 1, TOP} if spot.point.name == RECEIVED else {spot.layer, TOP}
        only = Only(frozenset({spot.request}), (first, spot.position), frozenset(layers), frozenset(names))
        events = self._run(ELEMENT_LEVEL, only, f"elements of {spot.point.name}").events
        for event in range(len(events)):
            same = spot_of(events, event)
            if (same.position, same.layer, same.point.name, same.part) == (spot.position, spot.layer, spot.point.name, spot.part):
                a, b = _elements_of(events, event)
                if a is not None and b is not None:
                    return first_difference(a, b)
        return _element_of_late_origin(events, spot, origin)

    def _without_cause(self, answers: Comparison) -> Finding:
        if answers.is_exact:
            return self._finding(EQUAL, "every record compared is equal", None, answers, ())
        reason = "answers differ and no operation does: look behind the head, where rows of logits become tokens of conversations"
        return self._finding(DIFFERS, reason, None, answers, ())

    def _finding(self, verdict: str, reason: str, cause: Cause | None, answers: Comparison, requests: tuple[int, ...]) -> Finding:
        planted = self._passes.plant.text() if self._passes.plant else ""
        return Finding(verdict, reason, cause, answers.differences, requests, tuple(self._notes), planted, self._passes.n_flips)


def _elements_of(events: Events, event: int) -> tuple:
    return (
        origin_of(events, event).elements.get(int(events.a[event])),
        copy_of(events, event).elements.get(int(events.b[event])),
    )


def _element_of_late_origin(events: Events, spot: Spot, origin: str) -> ElementDifference | None:
    """Compare a copy that was read with what was stored a row before, where its origin has no elements."""
    records, name = (events.left if spot.sides == "left" else events.right), LATE_ORIGINS.get(origin, "")
    found = {}
    for record, elements in records.elements.items():
        at = (records.names[int(records.point[record])], int(records.stages[int(records.owner[record])].position[int(records.row[record])]))
        found[at] = elements
    a, b = found.get((name, spot.position - 1)), found.get((spot.point.name, spot.position))
    return first_difference(a, b) if a is not None and b is not None else None


def _origin(events: Events, spot: Spot) -> tuple[str, int | None]:
    """Return the point that a copy must equal, and its position."""
    origin = spot.point.same_as
    if not origin:
        return "", None
    age = max(spot.part, 0) + spot.point.name.endswith(".read")
    return RESIDUALS[-1] if origin == "residual" else origin, spot.position - age


def _is_final(spot: Spot) -> bool:
    """Whether a spot of the first pass needs no closer look."""
    return spot.point.name in (RECEIVED, RESIDUALS[0])


def _kind(point: Point) -> str:
    if point.name == RECEIVED:
        return HAND_OFF
    if point.name.endswith(".read"):
        return RACE
    return STATE if point.name.endswith(".stored") else OPERATION


def _part_words(point: Point, part: int) -> str:
    if part == NO_PART:
        return ""
    return f"expert {part}" if point.name.startswith("moe.") else f"line of age {part}"


def locate(passes: Passes, deep: bool = False) -> Finding:
    """Find the first operation that differs between a case's arms."""
    return Search(passes, deep).find()
