"""Windows of one row and of eight with other constants of the kernels: python -m tests.gpu.measure.window_variants [--build FOLDER] [WORD ...].

A synthetic model of the real geometry with LAYERS layers is made once.  Each variant changes constants of modules and has an executor of
its own; what is timed is its window as the executor recorded it: a graph between two events, microseconds.  A first window from a clean
session has to give the logits' bits of the first variant.  The first variant comes once more at the end: the difference is the card's drift.
WORDs choose variants whose names hold one.  --build compiles what all of them need into FOLDER, with as many processes as there are cores and
without a card; name FOLDER in STRATA_CUDA_KERNELS afterwards.  Keys of kernels hold what a variant changes, so that one folder serves all.
"""

import sys
from pathlib import Path

import numpy as np

from tests.gpu.measure.variants import Variant
from tests.gpu.support import folded_bits

LAYERS, POSITION, CONTEXT, SEED, N_TIMES = 12, 3000, 4096, 1, 31
DENSE, EXPERTS, HEAD = "Q4_K", "Q4_K", "Q6_K"
ROWS = (1, 8)

PRODUCTS, PARTS, NARROW, DENSE_ROWS, JOINED, LONG, ATTENTION, PREFETCHING = (
    f"strata.cuda.{name}" for name in (
        "expert_products", "expert_parts", "narrow_selection", "rows", "joined_rows", "float_long_rows", "window_attention", "prefetching",
    )
)
GATE_UP, DOWN = (PRODUCTS, "gate_up_kernel"), (PRODUCTS, "down_kernel")
OLD_GATE_UP = {(PARTS, "GATE_UP_STAGES"): 4, (PARTS, "GATE_UP_ROOM"): 80 << 10}


def one_row_blocks(n: int) -> Variant:
    """Registers of one-row products are left for n blocks a multiprocessor."""
    return Variant(f"one-row products for {n} blocks", {(DENSE_ROWS, "ONE_ROW_BLOCKS"): n}, ((DENSE_ROWS, "dense_rows"), (JOINED, "joined_rows")))


def heads(many_rows: int, name: str) -> Variant:
    """Windows of many_rows rows and more have twelve heads a block of attention, others six."""
    return Variant(name, {(ATTENTION, "MANY_ROWS"): many_rows}, ((ATTENTION, "staged_kernel"),))


def selection(threads: int, keys: int) -> Variant:
    return Variant(f"selection {threads} threads x {keys}", {(NARROW, "CUTS"): ((threads, keys),)})


def one_row_gate_up(units: int, stages: int, kilobytes: int, name: str, more: dict | None = None) -> Variant:
    """Another cut of gate and up in windows of one row."""
    return Variant(f"gate_up {name}", {(PARTS, "ONE_ROW_GATE_UP"): (units, stages, kilobytes << 10)} | (more or {}), (GATE_UP,))


NOT_ASKED, THREE_BLOCKS = {(PRODUCTS, "ASK_DOWN"): False}, {(PRODUCTS, "ONE_ROW_BLOCKS"): 3}
VARIANTS: tuple[tuple[Variant, tuple[int, ...]], ...] = (
    (Variant("in force"), ROWS),
    (Variant("nothing prefetched", {(PREFETCHING, "PREFETCH"): False}), (1,)),
    (Variant("down not prefetched", NOT_ASKED), (1,)),
    (Variant("router's results late", {("strata.cuda.residual.streams", "KNOWN_EARLY"): False}), (1,)),
    (Variant("prefetch before the wait", {(LONG, "ASK_EARLY"): True}, ((LONG, "long_rows"),)), (1,)),
    (one_row_gate_up(0, 4, 80, "for 3 blocks", THREE_BLOCKS), (1,)),
    (one_row_gate_up(0, 3, 60, "3 stages, 3 blocks", THREE_BLOCKS), (1,)),
    (one_row_gate_up(0, 3, 60, "3 stages, 3 blocks, down not prefetched", NOT_ASKED | THREE_BLOCKS), (1,)),
    (one_row_gate_up(1, 11, 104, "all at once"), (1,)),
    (Variant("gate_up 4 stages", OLD_GATE_UP, (GATE_UP,)), (8,)),
    (Variant("down for 2 blocks", {(PRODUCTS, "MIN_BLOCKS"): 2}, (DOWN,)), (1,)),
    (Variant("down 1 turn", {(PRODUCTS, "DOWN_TURNS"): 1}), (1,)),
    (Variant("down 4 turns", {(PRODUCTS, "DOWN_TURNS"): 4}), (8,)),
    (Variant("down not ahead", {(PRODUCTS, "DOWN_AHEAD"): False}), (1,)),
    (Variant("deep stages half early", {(DENSE_ROWS, "DEEP_EARLY"): 6}, ((DENSE_ROWS, "dense_rows"),)), (1,)),
    (Variant("3 of 4 stages early", {(DENSE_ROWS, "EARLY"): 3}, ((DENSE_ROWS, "dense_rows"), (JOINED, "joined_rows"))), (1,)),
    (one_row_blocks(7), (1,)),
    (Variant("head 14 turns", {(DENSE_ROWS, "MOST_TURNS"): 14}), (1,)),
    (Variant("head 4 turns", {(DENSE_ROWS, "MOST_TURNS"): 4}), (1,)),
    (selection(1024, 1), ROWS),
    (selection(256, 4), ROWS),
    (heads(1, "attention 12 heads"), (1,)),
    (heads(9, "attention 6 heads"), (8,)),
    (Variant("long rows of 10 steps", {(LONG, "STEPS"): 10, (LONG, "BATCH"): 2560}, ((LONG, "long_rows"),)), (1,)),
    (Variant("long rows off", {(LONG, "MOST_ROWS"): 0}), (1,)),
)
"""Variants and the rows of the windows that they concern; the first is what is in force."""


def chosen(words: list[str]) -> list[tuple[Variant, tuple[int, ...]]]:
    """The first variant, and those whose names hold one of the words (without words: all)."""
    first, *others = VARIANTS
    return [first, *(one for one in others if not words or any(word in one[0].name for word in words))]


def made_stage(device, n_layers: int = LAYERS):
    """Return the model's configuration and its stage on a card, or on a blueprint, whose arrays hold nothing."""
    from strata.bench.gpu.geometry import REAL, with_layers
    from strata.bench.gpu.stage import stage_of, weights_of

    config = with_layers(REAL, n_layers)
    return config, stage_of(device, config, weights_of(config, DENSE, EXPERTS, HEAD), SEED)


def executor_of(device, config, stage, n_rows: int):
    from strata.cuda.stage.executor import CudaExecutor
    from strata.numerics.rounding import MODES

    return CudaExecutor(device, config, stage, MODES["canonical"], "f16", n_rows, CONTEXT)


def window_of(config, n_rows: int):
    from strata.bench.gpu.windows import decode_window

    return decode_window(n_rows, POSITION, config.vocabulary, SEED + n_rows)


def build_all(folder: str, words: list[str]) -> int:
    """Compile the kernels of all variants; returns 1 where one failed."""
    from strata.cuda.card.blueprint import Blueprint
    from strata.cuda.card.building import KernelFolder, build
    from strata.split.devices import usable_cores
    from strata.windows.stage_pass import pass_blocks

    device = Blueprint((9, 0))
    config, stage = made_stage(device)
    for variant, row_counts in chosen(words):
        with variant.in_force():
            for n_rows in row_counts:
                executor_of(device, config, stage, n_rows).record(window_of(config, n_rows), True, pass_blocks)
    Path(folder).mkdir(parents=True, exist_ok=True)
    built = build(KernelFolder(Path(folder), True, (9, 0)), list(device.needed), usable_cores(), lambda done, n: None)
    print(f"{built.n_wanted} kernels, {built.n_there} were there, {built.n_compiled} compiled in {built.seconds:.1f} s", *built.failures, sep="\n")
    return int(bool(built.failures))


def figures(device, config, stage, n_rows: int) -> tuple[float, float, np.ndarray]:
    """Microseconds of a window, median and least, and the bits of a first window's logits."""
    from strata.bench.gpu.clocks import graph_ms
    from strata.bench.gpu.stage import fill_cells
    from strata.windows.stage_pass import pass_blocks

    executor, window = executor_of(device, config, stage, n_rows), window_of(config, n_rows)
    try:
        fill_cells(executor.sessions, SEED)
        logits = folded_bits(np.array(executor.run_window(window, None, pass_blocks)))
        spread = graph_ms(device, executor.prepare(window, pass_blocks).launches, N_TIMES)
        return 1e3 * spread.median, 1e3 * spread.least, logits
    finally:
        executor.close()


def measured(device, words: list[str]) -> int:
    """Print a line per variant; return how many had other bits than the first."""
    config, stage = made_stage(device)
    variants, wanted, before, n_wrong = chosen(words), {}, {}, 0
    print(f"{device.card.name}, {LAYERS} layers, us a window (median, least, difference of the medians)", flush=True)
    for variant, row_counts in [*variants, variants[0]]:
        line = f"{variant.name:42s}"
        with variant.in_force():
            for n_rows in row_counts:
                median, least, logits = figures(device, config, stage, n_rows)
                is_equal = np.array_equal(wanted.setdefault(n_rows, logits), logits)
                n_wrong += not is_equal
                line += f"  {n_rows} rows {median:9.1f} {least:9.1f} {median - before.setdefault(n_rows, median):+8.1f}{'' if is_equal else ' OTHER BITS'}"
        print(line, flush=True)
    print(f"{n_wrong} windows with other bits than the first variant's")
    return int(n_wrong > 0)


def main(words: list[str]) -> int:
    if words[:1] == ["--build"]:
        return build_all(words[1], words[2:])
    from strata.bench.gpu.clocks import TimedDevice

    return measured(TimedDevice(0), words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
