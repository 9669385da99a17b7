"""Times the products of decode windows on one card, and variants of their cuts:  python -m tests.gpu.measure_windows [FILE.json]

Matrices of the real geometry, each as a captured graph over enough copies that none stays in the cache.  Every variant's
products must have the bits of the dp4a kernels of the same rows (else exit status 1).  Some dozen kernels are compiled, a
minute in all.
"""

import json
import sys
from dataclasses import dataclass

import numpy as np

from strata.cuda import rows, window_kernels
from strata.cuda.launch import Launch, Shape
from strata.cuda.products import Packed, activations
from strata.cuda.window_cuts import Cut, blocks_of, cut_of, shared_bytes
from strata.formats.table import by_name
from tests.gpu.measure_products import Bench, copy_gb_per_s, timed_us

WORKING_SET, ROOM = 160 << 20, 227 << 10


@dataclass(frozen=True, slots=True)
class Case:
    """One matrix, the rows it is timed with, and cuts (turns, units, stages, min_blocks) beside the chosen one."""

    name: str
    form: str
    n_out: int
    n_in: int
    row_counts: tuple[int, ...]
    cuts: tuple[tuple[int, int, int, int], ...]


CASES = (
    Case("qkv+gate", "Q4_K", 16384, 2560, (8, 5), ((3, 4, 4, 3), (2, 4, 4, 3), (2, 10, 2, 3), (4, 4, 4, 2))),
    Case("gdn.output", "Q4_K", 2560, 6144, (8, 5), ((1, 8, 2, 3), (1, 2, 8, 3), (1, 4, 5, 2))),
    Case("head", "Q6_K", 248320, 2560, (8,), ((8, 2, 4, 3), (4, 4, 3, 3), (16, 4, 3, 3))),
)
"""At (4, 4, 4, 2) and (1, 4, 5, 2) a thread has 128 registers instead of 80."""


def dp4a_launch(device, m: Packed, x, n_rows: int, out) -> Launch:
    """The product as rows.py makes it, whatever products.dense would take."""
    turns = rows.turns_of(m.n_out)
    grid = rows.grid_of(m.n_out, 1, turns)
    stages = rows.stages_of(m.type_id, n_rows, m.n_groups, grid[0], ROOM)
    shape = Shape(grid, rows.THREADS, rows.shared_bytes(m.type_id, n_rows, m.n_groups, stages))
    sizes = (np.int32(m.row_bytes), np.int32(m.n_groups), np.int32(m.n_out), np.int32(turns))
    kernel = rows.dense_rows(m.type_id, n_rows, stages, device.target)
    return Launch(device, kernel, shape, (m.raw, *sizes, *activations(m, x), out), True)


def window_launches(device, matrices, cut: Cut, min_blocks: int, x, n_rows: int, out) -> list[Launch]:
    """Tensor-core launches with a given cut and bound of registers."""
    kept = window_kernels.MIN_BLOCKS
    window_kernels.MIN_BLOCKS = min_blocks
    if min_blocks != kept:
        window_kernels.window_products.cache_clear()
    try:
        return [window_kernels.window_launch(device, cut, (m,), (out,), activations(m, x), n_rows, True) for m in matrices]
    finally:
        window_kernels.MIN_BLOCKS = kept
        if min_blocks != kept:
            window_kernels.window_products.cache_clear()


def measured(bench: Bench, case: Case) -> int:
    """Time one case; return how many variants had other bits than the dp4a kernels."""
    form, device, n_wrong = by_name(case.form), bench.device, 0
    n_bytes = case.n_out * (case.n_in // form.block_weights) * form.block_bytes
    copies = max(2, WORKING_SET // n_bytes)
    matrices, x = bench.packed(form, case.n_out, case.n_in, copies=copies), bench.coded(8, case.n_in)
    out = device.empty("out", 8 * case.n_out, np.float32)
    chosen = cut_of(form.type_id, case.n_in // 32, (case.n_out,), ROOM)

    def result(launch: Launch, n_rows: int) -> np.ndarray:
        out.copy_to_device(np.full(out.size, np.nan, np.float32))
        launch.go()
        device.synchronise()
        return out.copy_to_host()[: n_rows * case.n_out].view(np.uint32)

    for n_rows in case.row_counts:
        launches = [dp4a_launch(device, m, x, n_rows, out) for m in matrices]
        wanted = result(launches[0], n_rows)
        bench.note(f"{case.name} {case.form} rows {n_rows}: dp4a", timed_us(device, launches), n_bytes)
        variants = [(chosen, window_kernels.MIN_BLOCKS, " (chosen)")]
        for turns, units, stages, min_blocks in case.cuts if n_rows == 8 else ():
            n_shared = shared_bytes(form.type_id, case.n_in // 32, units, stages)
            variants.append((Cut(turns, units, stages, n_shared), min_blocks, ""))
        for cut, min_blocks, note in variants:
            launches = window_launches(device, matrices, cut, min_blocks, x, n_rows, out)
            wrong = int((result(launches[0], n_rows) != wanted).sum())
            n_wrong += wrong > 0
            label = f"{cut.turns},{cut.units},{cut.stages},{min_blocks}{note} {blocks_of(case.n_out, cut.turns)} blocks"
            verdict = f" {wrong} BITS DIFFER" if wrong else ""
            bench.note(f"{case.name} {case.form} rows {n_rows}: {label}{verdict}", timed_us(device, launches), n_bytes)
    del matrices, x, out
    bench.free()
    return n_wrong


def one_row(bench: Bench) -> None:
    """The products of a window of one row, with the registers of nine blocks a multiprocessor and of seven."""
    kept = rows.ONE_ROW_BLOCKS
    for case in CASES:
        form, device = by_name(case.form), bench.device
        n_bytes = case.n_out * (case.n_in // form.block_weights) * form.block_bytes
        matrices, x = bench.packed(form, case.n_out, case.n_in, copies=max(2, WORKING_SET // n_bytes)), bench.coded(1, case.n_in)
        out = device.empty("out", case.n_out, np.float32)
        for n_blocks in (kept, 7):
            rows.ONE_ROW_BLOCKS = n_blocks
            rows.dense_rows.cache_clear()
            launches = [dp4a_launch(device, m, x, 1, out) for m in matrices]
            bench.note(f"{case.name} {case.form} row 1, registers of {n_blocks} blocks", timed_us(device, launches), n_bytes)
        rows.ONE_ROW_BLOCKS = kept
        rows.dense_rows.cache_clear()
        del matrices, x, out
        bench.free()


def main(argv: list[str]) -> int:
    bench = Bench()
    copy = copy_gb_per_s(bench.device)
    print(f"{bench.device.card.name}: device copy {copy:.0f} GB/s; cuts are turns,units,stages,min_blocks", flush=True)
    n_wrong = sum(measured(bench, case) for case in CASES)
    one_row(bench)
    print(f"{n_wrong} variants with other bits than the dp4a kernels")
    if argv:
        results = [dict(name=r.name, us=r.us, gb_per_s=r.gb_per_s) for r in bench.results]
        with open(argv[0], "w") as file:
            json.dump({"card": bench.device.card.name, "copy_gb_per_s": copy, "results": results}, file, indent=1)
    return int(n_wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
