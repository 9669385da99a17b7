"""Arithmetic of one unit in the last place, in the result of every operation and in every state: one executor is not the other.

Each fault flips the lowest bit of the largest element of every record of one point, at one layer, in one arm.
Does not know: checks.
"""

from harness.faults.fault import ALL, ONE, Fault
from harness.faults.hooks import add_probe
from harness.faults.ulp import UlpFault, Where
from harness.ledger.points import INSIDE, POINTS, TOKENS, TOP, Point
from strata.split.stages import RECEIVED

KIND = "arithmetic"
LAYERS = {"ngram": 1, "gdn": 4, "qsa": 7, "indexer": 7, "attention": 5, "moe": 9, RECEIVED: 6}
"""The layer at which the points of a family are hit, by the first part of their names."""
HASHED = frozenset({"gdn.memory.after"})
"""Points that are shown as hashes cannot be hit; the state that they follow can."""
COMMON = ("ngram.residual", "gdn.scan", "qsa.attended", "moe.output", "logits")


def faults() -> list[Fault]:
    """Return the faults."""
    found = [_in_one_arm(point) for point in POINTS.values() if point.name != TOKENS and point.name not in HASHED]
    return found + [_in_all(POINTS[name]) for name in COMMON]


def layer_of(point: Point) -> int:
    """Return the layer at which a point is hit."""
    return LAYERS[point.name.split(".")[0]] if point.where == INSIDE else TOP


def _in_one_arm(point: Point) -> Fault:
    return Fault(
        f"ulp-{point.name}",
        KIND,
        _site(point),
        f"{point.words}: one unit in the last place, in one arm",
        _seen_by(point.name),
        _plant(point),
        reach=ONE,
    )


def _in_all(point: Point) -> Fault:
    seen_by = ("golden", "golden deep")
    return Fault(
        f"ulp-all-{point.name}",
        KIND,
        _site(point),
        f"{point.words}: one unit in the last place, in all arms",
        seen_by,
        _plant(point),
        reach=ALL,
    )


def _site(point: Point) -> str:
    layer = layer_of(point)
    return point.name if layer == TOP else f"{point.name}, layer {layer}"


def _plant(point: Point):
    where = Where(point.name, layer=layer_of(point))
    return lambda engine: add_probe(engine, UlpFault(where))


def _seen_by(name: str) -> tuple[str, ...]:
    if name == RECEIVED:
        return ("split/2-stages-6",)
    if "_scales." in name:
        return ("batch/int8-4", "ledger batch/int8-4")
    if name.startswith("indexer"):
        return ("deep batch/slots-2", "ledger deep batch/slots-2")
    return ("batch/slots-2", "ledger batch/slots-2")
