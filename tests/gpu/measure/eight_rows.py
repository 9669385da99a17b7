"""Times of the launches of a window of eight rows, as they are and as they were: python -m tests.gpu.measure.eight_rows [ROOM ...]

Real geometry; variants and columns as in variants.py: microseconds of a launch alone (it waits for the one before) and early
(programmatic).  Every variant has to give the bits of the first, else the run fails.  Some twelve kernels are compiled.
ROOMs: down, wide, router, joined, head.
"""

import sys
from collections.abc import Callable

import numpy as np

from tests.gpu.geometry import REAL, flat, normal
from tests.gpu.measure.moe import bank
from tests.gpu.measure.variants import Variant, down as streams_down, figures

C, ROWS, SETS = REAL, 8, 8
EXPERTS, FLOATS, ROUTER, PRODUCTS = (
    f"strata.cuda.{name}" for name in ("experts.expert_products", "floats.float_wide_rows", "experts.router", "packed.window_kernels")
)


def _coded(card, n_rows: int, n: int):
    from strata.cuda.packed.products import code, make_coded

    coded = make_coded(card, "coded", n_rows, n)
    code(card, flat(card, normal(n, n_rows, n)), coded, n_rows).go()
    return coded


def _brains(card, seed: int, n_out: int, n_in: int):
    return flat(card, (normal(seed, n_out * n_in).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8))


def _lists(card, seed: int):
    """The entries of rows that chose their experts at random."""
    from strata.cuda.packed.products import make_lists

    generator, n_entries = np.random.default_rng(seed), ROWS * C.n_used
    ids = np.concatenate([generator.choice(C.n_experts, C.n_used, replace=False) for _ in range(ROWS)])
    order = np.argsort(ids, kind="stable")
    experts, first = np.unique(ids[order], return_index=True)
    lists = make_lists(card, "lists", C.n_experts, n_entries)
    starts = np.full(C.n_experts + 1, n_entries)
    starts[: first.size] = first
    values = ((lists.n_listed, [experts.size]), (lists.experts, np.resize(experts, C.n_experts)), (lists.starts, starts), (lists.entry_rows, order // C.n_used))
    for array, numbers in values:
        array.copy_to_device(np.asarray(numbers, np.int32))
    return lists


def down(card) -> Callable:
    """Down of the experts, in Q4_0."""
    from strata.cuda.experts.expert_products import Experts, launch_down

    n_entries = ROWS * C.n_used
    own, shared = (bank(card, "Q4_0", C.hidden, C.expert_ff, n) for n in (C.n_experts, 1))
    hidden, out = _coded(card, n_entries + ROWS, C.expert_ff), card.zeros("out", (n_entries + ROWS) * C.hidden, np.float32)
    experts = [Experts(ROWS, _lists(card, s), (own,), (shared,), n_entries) for s in range(SETS)]
    return lambda: ([(launch_down(card, one, hidden, out, ahead=True),) for one in experts], (out,))


def router(card) -> Callable:
    """The router, and the choice behind it."""
    from strata.cuda.experts.router import launch_router
    from strata.cuda.machine.posting import EMPTY
    from strata.cuda.packed.products import make_lists

    weights = [(_brains(card, s, C.n_experts, C.hidden), _brains(card, 99, 1, C.hidden)) for s in range(24)]
    x, posted = flat(card, normal(7, ROWS, C.hidden)), flat(card, np.full(ROWS * C.n_experts, EMPTY, np.int32))
    logits, gate, shares = (card.zeros("logits", n, np.float32) for n in (ROWS * C.n_experts, ROWS, ROWS * C.n_used))
    ids, entry_of = (card.zeros("ids", ROWS * C.n_used, np.int32) for _ in range(2))
    lists = make_lists(card, "lists", C.n_experts, ROWS * C.n_used)
    places = (logits, gate, posted, ids, shares, lists, entry_of)
    return lambda: ([(launch_router(card, C, "BF16", *w, C.hidden, x, ROWS, *places),) for w in weights], (logits, gate, ids, shares, entry_of))


def joined(card) -> Callable:
    """Queries, keys, values and the indexer's, in one launch."""
    from strata.cuda.stage.projections import Projection, launch_projections
    from tests.gpu.measure.layers import Weights

    weights, x, coded = Weights(card), flat(card, normal(7, ROWS, C.hidden)), _coded(card, ROWS, C.hidden)
    dense_outs, float_outs = (C.q_gate_width, C.kv_width, C.kv_width), (C.indexer_width, C.indexer_dim)
    outs = [card.zeros("out", ROWS * n, np.float32) for n in (*dense_outs, *float_outs)]
    layers = [[*(weights.dense(n, C.hidden) for n in dense_outs), *(weights.floats(n, C.hidden) for n in float_outs)] for _ in range(SETS)]
    return lambda: (
        [tuple(launch_projections(card, [Projection(m, out) for m, out in zip(layer, outs, strict=True)], x, coded, ROWS)) for layer in layers], outs
    )


def head(card) -> Callable:
    """The head, in Q6_K."""
    from strata.cuda.packed.products import dense

    matrix, coded, out = bank(card, "Q6_K", C.vocabulary, C.hidden, 1), _coded(card, ROWS, C.hidden), card.zeros("out", ROWS * C.vocabulary, np.float32)
    return lambda: ([(dense(card, matrix, coded, ROWS, out),) for _ in range(2)], (out,))


def rooms() -> dict[str, tuple[Callable, list[Variant]]]:
    """By name: what is measured, and the variants: as in force, then others."""
    now = Variant("as in force")
    return {
        "down": (down, [now, Variant("whole rows, 2 turns", {(EXPERTS, "SHORT_TURNS"): 2}), Variant("rows in stages", {(EXPERTS, "SHORT_DOWNS"): False})]),
        "wide": (lambda card: streams_down(card, ROWS), [now, Variant("one side", {(FLOATS, "TWO_SIDES"): False})]),
        "router": (router, [now, Variant("a team an output", {(ROUTER, "BY_ROWS_FROM"): 99})]),
        "joined": (joined, [now, Variant("a team a float output", {(PRODUCTS, "WIDE_FLOATS"): False})]),
        "head": (head, [now, Variant("tensor cores", {(PRODUCTS, "MOST_SPLIT_OUTPUTS"): 1 << 30})]),
    }


def measured(card, name: str) -> list[str]:
    """Return a line per variant; raises AssertionError where bits differ."""
    measure, variants = rooms()[name]
    build, wanted, lines = measure(card), None, []
    for variant in variants:
        with variant.in_force():
            times, arrays = figures(card, build)
        wanted = wanted or arrays
        assert all(np.array_equal(a, b) for a, b in zip(wanted, arrays, strict=True)), f"{name}, {variant.name}: other bits"
        lines.append(f"{name:10s} {variant.name:40s}{times[0]:9.2f}{times[1]:9.2f}")
        print(lines[-1], flush=True)
    for purpose in list(card.taken):
        card.give_back(purpose)
    return lines


def main() -> None:
    from strata.cuda.card.device import CudaDevice

    card = CudaDevice(0)
    print(f"{'us, eight rows':51s}    alone    early")
    for name in sys.argv[1:] or rooms():
        measured(card, name)


if __name__ == "__main__":
    main()
