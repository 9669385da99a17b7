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

PRODUCTS, PARTS, DENSE_ROWS, JOINED, ONE_ROW, WIDE_ROWS, SCAN, READ_MIX, STREAMS, CUTS, DEVICE, STAGING, WINDOW = (
    f"strata.cuda.{name}" for name in (
        "experts.expert_products", "experts.expert_parts", "packed.rows", "packed.joined_rows", "floats.float_one_row", "floats.float_wide_rows",
        "delta_net.window_scan", "residual.read_mix", "residual.streams", "packed.window_cuts", "card.device",
        "packed.staging", "attention.window_attention",
    )
)
GATE_UP, DOWN = (PRODUCTS, "gate_up_kernel"), (PRODUCTS, "down_kernel")
ROW_KERNELS = ((DENSE_ROWS, "dense_rows"), (JOINED, "joined_rows"))


def one_row_blocks(n: int) -> Variant:
    """Registers of one-row products are left for n blocks a multiprocessor."""
    from strata.cuda.packed.rows import MIN_BLOCKS

    blocks = MIN_BLOCKS | {1: n}
    return Variant(f"one-row products for {n} blocks", {(DENSE_ROWS, "MIN_BLOCKS"): blocks, (JOINED, "MIN_BLOCKS"): blocks}, ROW_KERNELS)


def joined(stages: int, early: int, n_blocks: int) -> Variant:
    """Products of one input with other stages, `early` of them sent before their input is waited for, for n_blocks blocks a multiprocessor."""
    from strata.cuda.packed import rows

    def dense_block(form, n_rows, target, known_groups):
        return rows.dense_block(form, n_rows, target, stages, known_groups)

    def shared_bytes(type_id, n_rows, n_groups):
        return rows.shared_bytes(type_id, n_rows, n_groups, stages)

    known = rows.early_of
    constants = {
        (JOINED, "dense_block"): dense_block, (JOINED, "shared_bytes"): shared_bytes, (JOINED, "MIN_BLOCKS"): rows.MIN_BLOCKS | {1: n_blocks},
        (DENSE_ROWS, "early_of"): lambda n: early if n == stages else known(n),
    }
    return Variant(f"joined of {stages} stages, {early} early, for {n_blocks} blocks", constants, ROW_KERNELS)


def experts(name: str, constants: dict) -> Variant:
    """Other constants of gate and up, and of down."""
    return Variant(f"experts {name}", constants, (GATE_UP, DOWN))


def scan(n_at_once: int) -> Variant:
    """Registers, or shared memory, of the delta net left for so many heads a multiprocessor."""
    return Variant(f"scan for {n_at_once} heads at once", {(SCAN, "heads_at_once"): lambda device, n_blocks, keep: n_at_once})


def variants() -> tuple[tuple[Variant, tuple[int, ...]], ...]:
    """Variants and the rows of the windows that they concern; the first is what is in force."""
    return (
        (Variant("in force"), ROWS),
        (one_row_blocks(6), (1,)),
        (one_row_blocks(7), (1,)),
        (joined(5, 2, 8), (1,)),
        (joined(5, 4, 8), (1,)),
        (joined(6, 5, 6), (1,)),
        (Variant("one-row products of any width", {(DENSE_ROWS, "known_of"): lambda n_rows, n_groups: 0}), (1,)),
        (Variant("attention by 3 heads", {(WINDOW, "FEW_HEADS"): 3}), (1,)),
        (Variant("attention by 12 heads", {(WINDOW, "FEW_HEADS"): 12}), (1,)),
        (Variant("attention by 6 heads", {(WINDOW, "MANY_HEADS"): 6}), (8,)),
        (Variant("joined of 2 turns", {(DENSE_ROWS, "LEAST_BLOCKS"): 512}), (1,)),
        (Variant("long rows as several are", {(ONE_ROW, "shared_bytes"): lambda type_name, n_in: 1 << 30}), (1,)),
        (Variant("long rows in 1 part", {(ONE_ROW, "PARTS"): 1}, ((ONE_ROW, "float_one_row"),)), (1,)),
        (Variant("long rows in 2 parts", {(ONE_ROW, "PARTS"): 2}, ((ONE_ROW, "float_one_row"),)), (1,)),
        (Variant("long rows in 8 parts", {(ONE_ROW, "PARTS"): 8}, ((ONE_ROW, "float_one_row"),)), (1,)),
        (experts("for 3 blocks", {(PRODUCTS, "ONE_ROW_BLOCKS"): 3}), (1,)),
        (experts("for 3 blocks, down in less room", {(PRODUCTS, "ONE_ROW_BLOCKS"): 3, (PARTS, "DOWN_ROOM"): 46 << 10}), (1,)),
        (experts("with down of 1 turn", {(PRODUCTS, "DOWN_TURNS"): 1}), (1,)),
        (scan(2), ROWS),
        (scan(3), (1,)),
        (Variant("streams of 320 threads", {(STREAMS, "MOST_STREAM_THREADS"): 320}, ((STREAMS, "stream_kernel"),)), ROWS),
        (Variant("down 4 turns", {(PRODUCTS, "DOWN_TURNS"): 4}), (8,)),
        (Variant("down 8 turns", {(PRODUCTS, "DOWN_TURNS"): 8}), (8,)),
        (Variant("few blocks as many", {(CUTS, "FEW_BLOCKS"): 0}), (8,)),
        (Variant("joined of 4 turns", {(CUTS, "ONE_WAVE"): 264}), (8,)),
        (Variant("joined of 2 turns", {(CUTS, "ONE_WAVE"): 528}), (8,)),
        (Variant("wide rows of 2 steps", {(WIDE_ROWS, "STEPS"): 2}, ((WIDE_ROWS, "wide_rows"),)), (8,)),
        (Variant("read mix 4 rows at once", {(READ_MIX, "ROWS_AT_ONCE"): (1, 2, 4)}), (8,)),
        (Variant("stages of 328 bytes", {(STAGING, "LARGEST_STAGE"): 328}, ROW_KERNELS), ROWS),
        (Variant("shared memory as the driver likes", {(DEVICE, "SHARED_SHARE"): -1}), ROWS),
        (Variant("shared memory of three quarters", {(DEVICE, "SHARED_SHARE"): 75}), ROWS),
        (Variant("wide rows of one side", {(WIDE_ROWS, "TWO_SIDES"): False}), (8,)),
    )


def chosen(words: list[str]) -> list[tuple[Variant, tuple[int, ...]]]:
    """The first variant, and those whose names hold one of the words (without words: all)."""
    first, *others = variants()
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
