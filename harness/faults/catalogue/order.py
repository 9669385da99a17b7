"""Arrival order: results are added in the order in which experts, rows or tiers finish, not in the written one.

Routed experts combine in router order; sorting a row's (id, weight) pairs otherwise, just after routing, makes them combine
otherwise while every product stays what it was.  Does not know: checks.
"""

from collections.abc import Callable

import numpy as np

from harness.faults.fault import ONE, SOME, Fault
from harness.faults.hooks import add_probe, wrap
from harness.faults.when import Rewriting
from strata.batch.engine import Engine
from strata.rows import Place, Window

KIND = "arrival order"
COMPANY = ("batch/slots-2", "ledger batch/slots-2")
OrderOf = Callable[[np.ndarray], np.ndarray]
"""From ids [rows, K] to the order of each row's experts, indices [rows, K]."""


def faults() -> list[Fault]:
    """Return the faults."""
    return [
        _sorted("order-first-appearance", 4, "in the order in which the window's rows first name them", by_appearance),
        _sorted("order-busiest-first", 6, "those with most rows of the window first", by_rows),
        _resident(),
        _arriving(),
        _sorted("order-by-id", 8, "by id, as a loop over an arena has them; on one device", by_id, ONE),
        _sorted("order-hot-first", 2, "even ids from one tier first, then the other tier's; on one device", by_tier, ONE),
        _shared_first(),
        _streams_descending(),
    ]


def _sorted(name: str, layer: int, words: str, order_of: OrderOf, reach: str = SOME) -> Fault:
    return Fault(
        name,
        KIND,
        f"combination of experts, layer {layer}",
        f"experts are added {words}",
        COMPANY,
        lambda engine: add_probe(engine, sorter(layer, order_of)),
        reach=reach,
    )


def sorter(layer: int, order_of: OrderOf) -> Rewriting:
    """Return the probe that sorts ids and weights, just after routing."""
    ids: dict[int, np.ndarray] = {}

    def see_ids(stage: int, window: Window, at: int, values: np.ndarray, place: Place) -> None:
        ids[stage] = values

    def see_weights(stage: int, window: Window, at: int, values: np.ndarray, place: Place) -> None:
        if at == layer:
            order = order_of(ids[stage])
            ids[stage][:] = np.take_along_axis(ids[stage], order, 1)
            values[:] = np.take_along_axis(values, order, 1)

    return Rewriting(moe__ids=see_ids, moe__weights=see_weights)


def by_appearance(ids: np.ndarray) -> np.ndarray:
    first = {int(e): i for i, e in reversed(list(enumerate(ids.reshape(-1))))}
    return np.argsort(np.vectorize(first.get)(ids), axis=1, kind="stable")


def by_rows(ids: np.ndarray) -> np.ndarray:
    return np.argsort(-np.bincount(ids.reshape(-1))[ids], axis=1, kind="stable")


def by_id(ids: np.ndarray) -> np.ndarray:
    return np.argsort(ids, axis=1, kind="stable")


def by_tier(ids: np.ndarray) -> np.ndarray:
    return np.argsort(ids % 2, axis=1, kind="stable")


def _resident() -> Fault:
    def plant(engine: Engine) -> None:
        seen: set[int] = set()

        def order_of(ids: np.ndarray) -> np.ndarray:
            cold = np.vectorize(lambda e: e not in seen)(ids)
            seen.update(map(int, ids.reshape(-1)))
            return np.argsort(cold, axis=1, kind="stable")

        add_probe(engine, sorter(5, order_of))

    return Fault(
        "order-resident-first",
        KIND,
        "combination of experts, layer 5",
        "experts that an earlier window used are added first",
        COMPANY,
        plant,
    )


def _arriving() -> Fault:
    def plant(engine: Engine) -> None:
        draw = np.random.default_rng(id(engine) % 2**32)
        add_probe(engine, sorter(7, lambda ids: np.argsort(draw.random(ids.shape), axis=1)))

    return Fault(
        "order-arrival",
        KIND,
        "combination of experts, layer 7",
        "experts are added as they arrive, in another order each time",
        COMPANY,
        plant,
    )


def _shared_first() -> Fault:
    """y = gate * shared, then the routed ones, where a window has company."""

    def plant(engine: Engine) -> None:
        kept: dict[str, np.ndarray] = {}

        def keeping(group: Callable) -> Callable:
            def grouped(ids: np.ndarray):
                entries, kept["entry_of"] = group(ids)
                return entries, kept["entry_of"]

            return grouped

        def rewrite(stage: int, window: Window, at: int, values: np.ndarray, place: Place) -> None:
            if at == 3 and len(window.segments) > 1:
                gate = 1 / (1 + np.exp(-kept["gate"].astype(np.float64)))
                total = (gate * kept["shared"]).astype(np.float32)
                for rank in range(kept["weights"].shape[1]):
                    part = kept["experts"][kept["entry_of"][:, rank]].astype(np.float64)
                    total = (kept["weights"][:, rank : rank + 1] * part + total).astype(np.float32)
                values[:] = total

        wrap(engine.stages[0].executor, "_group", keeping)
        keep = {
            f"moe__{name.replace('.', '__')}": _keep(kept, name.split(".")[-1]) for name in ("weights", "experts", "shared", "shared.gate")
        }
        add_probe(engine, Rewriting(**keep, moe__output=rewrite))

    return Fault(
        "order-shared-first",
        KIND,
        "combination of experts, layer 3",
        "in company, the shared expert is added first and not last",
        COMPANY,
        plant,
    )


def _keep(kept: dict[str, np.ndarray], name: str):
    def seen(stage: int, window: Window, at: int, values: np.ndarray, place: Place) -> None:
        if stage == 0:
            kept[name] = values

    return seen


def _streams_descending() -> Fault:
    def plant(engine: Engine) -> None:
        kept: dict[str, np.ndarray] = {}

        def rewrite(stage: int, window: Window, at: int, values: np.ndarray, place: Place) -> None:
            if at == 4:
                normed, gate = (kept[name].astype(np.float64).reshape(len(values), -1, values.shape[1]) for name in ("normed", "gate"))
                parts = normed / (1 + np.exp(-gate))
                total = np.zeros(values.shape, np.float32)
                for stream in range(parts.shape[1] - 1, -1, -1):
                    total = (total + parts[:, stream]).astype(np.float32)
                values[:] = total / np.float32(parts.shape[1])

        add_probe(engine, Rewriting(attention__normed=_keep(kept, "normed"), attention__gate=_keep(kept, "gate"), attention__mixed=rewrite))

    return Fault(
        "order-streams",
        KIND,
        "mix of the streams, layer 4",
        "streams are added from the last to the first, on one device",
        COMPANY,
        plant,
        reach=ONE,
    )
