"""Times of variants of attention's and the streams' kernels at the real geometry: python -m tests.gpu.measure.variants [ROOM ...].

A variant changes constants of modules; each has to give the bits of the first one of its room.  A figure is the time of one set
of launches in a graph of many, microseconds: alone (every launch waits for the one before) and early (programmatic launches).
Sets have cells or weights of their own, more than the card's cache holds together.  Some seventeen kernels are compiled; ROOMs: merge, heads, selection, down, chunk.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from tests.gpu.geometry import REAL, CodedOutput, flat, normal, tables_of, window_of
from tests.gpu.measure.operations import time_us
from tests.gpu.support import folded_bits

C = REAL
POSITION, N_CELLS, N_SLOTS = 3000, 4096, 16


@dataclass(frozen=True)
class Variant:
    """A name, the constants to change as (module, name) -> value, and the module's cached factories that have read them."""

    name: str
    constants: dict = field(default_factory=dict)
    factories: tuple = ()

    @contextmanager
    def in_force(self):
        from importlib import import_module

        before = {key: getattr(import_module(key[0]), key[1]) for key in self.constants}
        self._set(self.constants)
        try:
            yield
        finally:
            self._set(before)

    def _set(self, constants: dict) -> None:
        from importlib import import_module

        for (module, name), value in constants.items():
            setattr(import_module(module), name, value)
        for module, name in self.factories:
            getattr(import_module(module), name).cache_clear()


MERGING, WINDOW, NARROW, ONE_ROW, TILED, TILED_PARTS, ROWWISE = (
    f"strata.cuda.{name}" for name in (
        "attention.merging", "attention.window_attention", "attention.narrow_selection", "floats.float_one_row", "attention.tiled_attention",
        "attention.tiled_attention_parts", "attention.split_attention",
    )
)


def merge_warps(n: int) -> Variant:
    """Blocks of n warps in the merge."""
    from strata.cuda.attention import merging

    constants = {(MERGING, "WARPS"): n, (MERGING, "SHARED_BYTES"): n * merging.WARP_BYTES}
    return Variant(f"merge in blocks of {n} warps", constants, ((MERGING, "merge_kernel"),))


def heads(many_rows: int, most_threads: int, name: str) -> Variant:
    """Windows of many_rows rows and more have more heads a block; registers are left for most_threads a multiprocessor."""
    return Variant(name, {(WINDOW, "MANY_ROWS"): many_rows, (WINDOW, "MOST_THREADS"): most_threads}, ((WINDOW, "staged_kernel"),))


def long_rows(n_parts: int) -> Variant:
    """A long row arrives in so many parts."""
    return Variant(f"{n_parts} parts", {(ONE_ROW, "PARTS"): n_parts}, ((ONE_ROW, "float_one_row"),))


def tile_rows(n: int) -> Variant:
    """Prompt tiles of n rows."""
    return Variant(f"tiles of {n} rows", {(TILED, "ROWS"): n, (TILED_PARTS, "ROWS"): n}, ((TILED, "tile_kernel"), (ROWWISE, "attention_kernel")))


def tile_heads(n: int, most_threads: int) -> Variant:
    """Teams of at most n heads; registers are left for most_threads a multiprocessor."""
    return Variant(f"tiles with {n} heads a thread", {(TILED, "MOST_HEADS"): n, (TILED, "MOST_THREADS"): most_threads}, ((TILED, "tile_kernel"),))


def no_tiles() -> Variant:
    """Every row by itself."""
    return Variant("rows one by one", {(TILED, "LARGEST_HEAD"): 0})


def random_halves(card, n: int):
    """Half-precision values from 1/32 to 1, of both signs."""
    generator = np.random.default_rng(n)
    return flat(card, generator.integers(0x2800, 0x3C00, n, np.uint16) | generator.integers(0, 2, n, np.uint16) << 15)


def chunk(card, n: int) -> Callable:
    """Attention of a prompt chunk of n rows from position 0 on, to all cells."""
    from strata.cuda.attention.heads import AttentionCells
    from strata.cuda.attention.split_attention import AttentionOutput, SplitScratch, launch_attention

    vectors = n * C.n_kv_heads * C.head_dim
    nothing = flat(card, np.zeros(1, np.uint16))
    cells = AttentionCells(n, 1, random_halves(card, vectors), nothing, random_halves(card, vectors + 2), nothing)
    queries, projected = flat(card, normal(2, n, C.attention_width)), flat(card, normal(3, n, C.q_gate_width))
    tables, one = tables_of(card, window_of((0, 0, n)), spare=0), flat(card, np.zeros(1, np.float32))
    outputs, coded = [card.zeros("outputs", n * C.attention_width, np.float32) for _ in range(2)], CodedOutput(card, n, C.attention_width).coded
    output = AttentionOutput(projected, *outputs, coded)
    scratch = SplitScratch(0, one, one, one)
    return lambda: (
        [launch_attention(card, C, tables, "f16", n, queries, cells, None, None, C.selection_width, 0.0625, scratch, output) for _ in range(2)],
        (*outputs, coded.codes, coded.scales),
    )


def attention(card, n: int) -> Callable:
    """Attention of n conversations over the whole selection, and its merge."""
    from strata.cuda.attention.heads import AttentionCells
    from strata.cuda.attention.split_attention import AttentionOutput, SplitScratch, launch_attention

    width, generator = C.selection_width, np.random.default_rng(1)
    vectors = N_SLOTS * N_CELLS * C.n_kv_heads * C.head_dim
    nothing = flat(card, np.zeros(1, np.uint16))
    cells = AttentionCells(N_CELLS, 1, random_halves(card, vectors), nothing, random_halves(card, vectors + 2), nothing)
    chosen = np.stack([np.sort(generator.choice(POSITION + 1, width, replace=False)) for _ in range(n)]).astype(np.int32)
    chosen, counts = flat(card, chosen), flat(card, np.full(n, width, np.int32))
    queries, projected = flat(card, normal(2, n, C.attention_width)), flat(card, normal(3, n, C.q_gate_width))
    tables = [tables_of(card, window_of(*(((s * n + row) % N_SLOTS, POSITION, 1) for row in range(n))), spare=0) for s in range(N_SLOTS // n)] * n
    pairs = n * -(-width // 64) * C.n_q_heads
    scratch = SplitScratch(pairs // C.n_q_heads, *(card.zeros("triples", m, np.float32) for m in (pairs, pairs, pairs * C.head_dim)))
    outputs = [card.zeros("outputs", n * C.attention_width, np.float32) for _ in range(2)]
    coded = CodedOutput(card, n, C.attention_width).coded
    output = AttentionOutput(projected, *outputs, coded)

    def build():
        return [
            launch_attention(card, C, t, "f16", width, queries, cells, chosen, counts, width, 0.0625, scratch, output) for t in tables
        ], (*outputs, coded.codes, coded.scales)

    return build


def selection(card, n: int) -> Callable:
    """The choice of cells, contexts of up to 4096 cells."""
    from strata.cuda.attention.selection import launch_selection

    most = N_CELLS // C.indexer_block
    scores = flat(card, np.abs(normal(4, n, most)))
    cells, counts = card.zeros("cells", n * C.selection_width, np.int32), card.zeros("counts", n, np.int32)
    tables = tables_of(card, window_of(*((row, POSITION, 1) for row in range(n))), spare=0)
    return lambda: ([(launch_selection(card, C, tables, scores, most, cells, counts),) for _ in range(16)], (cells, counts))


def down(card, n: int) -> Callable:
    """The streams' first product: `down` and inject of n rows."""
    from strata.cuda.packed.products import Other, floats

    width, generator = C.residual_width, np.random.default_rng(5)

    def weights(n_out):
        values = generator.standard_normal(n_out * width).astype(np.float32)
        return flat(card, (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8))

    x, out, inject = flat(card, normal(6, n, width)), card.zeros("low", n * C.low_rank, np.float32), card.zeros("inject", n * C.n_streams, np.float32)
    layers = [(weights(C.low_rank), weights(C.n_streams)) for _ in range(12)]
    return lambda: (
        [(floats(card, "BF16", a, width, C.low_rank, x, n, out, other=Other(b, C.n_streams, inject)),) for a, b in layers], (out, inject)
    )


def rooms() -> dict[str, tuple[Callable, tuple[int, ...], list[Variant]]]:
    """By name: what is measured, rows, variants; the first is the one in force."""
    cuts = [Variant(f"{a} threads x {b}", {(NARROW, "CUTS"): ((a, b),)}) for a, b in ((1024, 1), (256, 4), (512, 2))]
    wide = [heads(1, 1100, "12 heads a block"), heads(99, 1100, "6 heads a block"), heads(1, 600, "12 heads, one block a multiprocessor")]
    return {
        "merge": (attention, (1,), [merge_warps(n) for n in (2, 1, 4)]),
        "heads": (attention, (1, 2, 4, 8), [heads(4, 1100, "as in force"), *wide]),
        "selection": (selection, (1, 8), cuts),
        "down": (down, (1,), [long_rows(n) for n in (4, 1, 2, 8)]),
        "chunk": (chunk, (2048,), [tile_rows(4), tile_rows(2), tile_heads(6, 512), no_tiles()]),
    }


def figures(card, build: Callable) -> tuple[list[float], list[np.ndarray]]:
    """Microseconds alone and early, and early of the last launch of a set; the arrays that the first set fills."""
    sets, results = build()
    for launch in sets[0]:
        launch.go()
    card.synchronise()
    arrays = [folded_bits(a) if a.dtype == np.float32 else a for a in (one.copy_to_host() for one in results)]
    times = [time_us(card, sets)]
    for launch in [launch for one in sets for launch in one][1:]:
        launch.follow()
    times += [time_us(card, sets), time_us(card, [one[-1:] for one in sets])]
    return times, arrays


def measured(card, name: str) -> Iterator[str]:
    """Yield a line per variant and number of rows; raises AssertionError where bits differ."""
    measure, row_counts, variants = rooms()[name]
    for n in row_counts:
        build, wanted = measure(card, n), None
        for variant in variants:
            with variant.in_force():
                times, arrays = figures(card, build)
            wanted = wanted or arrays
            assert all(np.array_equal(a, b) for a, b in zip(wanted, arrays, strict=True)), f"{name}, {n} rows, {variant.name}: other bits"
            yield f"{name:10s} {n} rows  {variant.name:40s}" + "".join(f"{us:9.2f}" for us in times)
        for purpose in list(card.taken):
            card.give_back(purpose)


def main() -> None:
    from strata.cuda.card.device import CudaDevice
    from strata.cuda.card.kernel_files import READY_FOLDER

    # Ready kernels are found by sources, which no variant changes.
    os.environ.pop(READY_FOLDER, None)
    card = CudaDevice(0)
    print(f"{'us':59s}    alone    early  last launch, early")
    for name in sys.argv[1:] or rooms():
        for line in measured(card, name):
            print(line, flush=True)


if __name__ == "__main__":
    main()
