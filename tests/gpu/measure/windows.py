"""Times the products of decode windows on one card, and variants of their cuts:  python -m tests.gpu.measure.windows [--all] [FILE.json]

Matrices of the real geometry, each as a captured graph over enough copies that none stays in the cache.  Every variant's
products must have the bits of the dp4a kernels of the same rows (else exit status 1).  A dozen kernels are compiled, with
--all some twenty.
"""

import json
import sys
from dataclasses import dataclass

import numpy as np

from strata.cuda.card.launch import Launch, Shape
from strata.cuda.packed import rows
from strata.cuda.packed.products import Packed, activations
from strata.cuda.packed.window_cuts import Cut, blocks_of, cut_of, shared_bytes
from strata.cuda.packed.window_kernels import window_launch
from strata.formats.table import by_name
from tests.gpu.measure.products import Bench, copy_gb_per_s, timed_us

WORKING_SET, ROOM = 160 << 20, 227 << 10


@dataclass(frozen=True, slots=True)
class Case:
    """One matrix, and cuts (turns, units, stages, held) beside the chosen one: `cuts` always, `more` with --all."""

    name: str
    form: str
    n_out: int
    n_in: int
    cuts: tuple[tuple[int, int, int, int], ...]
    more: tuple[tuple[int, int, int, int], ...]


CASES = (
    Case("qkv+gate", "Q4_K", 16384, 2560, ((2, 10, 2, 3), (3, 4, 4, 3)), ((4, 4, 4, 2), (2, 2, 4, 4), (3, 2, 6, 3))),
    Case("gdn.output", "Q4_K", 2560, 6144, ((1, 4, 5, 3),), ((1, 8, 2, 2), (1, 2, 8, 2))),
    Case("head", "Q6_K", 248320, 2560, ((16, 4, 3, 3),), ((8, 2, 4, 3), (8, 4, 3, 2))),
)


def dp4a_launch(device, m: Packed, x, n_rows: int, out) -> Launch:
    """The product as rows.py makes it, whatever products.dense would take."""
    turns = rows.turns_of(m.n_out)
    grid = rows.grid_of(m.n_out, 1, turns)
    stages = rows.stages_of(m.type_id, n_rows, m.n_groups, grid[0], ROOM)
    shape = Shape(grid, rows.THREADS, rows.shared_bytes(m.type_id, n_rows, m.n_groups, stages))
    sizes = (np.int32(m.row_bytes), np.int32(m.n_groups), np.int32(m.n_out), np.int32(turns))
    kernel = rows.dense_rows(m.type_id, n_rows, stages, rows.known_of(n_rows, m.n_groups), device.target)
    return Launch(device, kernel, shape, (m.raw, *sizes, *activations(m, x), out), True)


def cuts_of(case: Case, every: bool) -> list[tuple[Cut, str]]:
    """Return the chosen cut and the others of a case, with what is said of them."""
    type_id, n_groups = by_name(case.form).type_id, case.n_in // 32
    cuts = [(cut_of(type_id, n_groups, (case.n_out,), ROOM), " (chosen)")]
    for turns, units, stages, held in case.cuts + (case.more if every else ()):
        cuts.append((Cut(turns, units, stages, held, shared_bytes(type_id, n_groups, units, stages)), ""))
    return cuts


def measured(bench: Bench, case: Case, every: bool) -> int:
    """Time one case; return how many variants had other bits than the dp4a kernels."""
    form, device, n_wrong = by_name(case.form), bench.device, 0
    n_bytes = case.n_out * (case.n_in // form.block_weights) * form.block_bytes
    matrices, x = bench.packed(form, case.n_out, case.n_in, copies=max(2, WORKING_SET // n_bytes)), bench.coded(8, case.n_in)
    out = device.empty("out", 8 * case.n_out, np.float32)

    def result(launch: Launch, n_rows: int) -> np.ndarray:
        out.copy_to_device(np.full(out.size, np.nan, np.float32))
        launch.go()
        device.synchronise()
        return out.copy_to_host()[: n_rows * case.n_out].view(np.uint32)

    launches = [dp4a_launch(device, m, x, 8, out) for m in matrices]
    wanted = result(launches[0], 8)
    bench.note(f"{case.name} {case.form} rows 8: dp4a", timed_us(device, launches), n_bytes)
    if case is CASES[0]:
        bench.note(f"{case.name} {case.form} rows 4: dp4a", timed_us(device, [dp4a_launch(device, m, x, 4, out) for m in matrices]), n_bytes)
    for cut, note in cuts_of(case, every):
        for n_rows in (8, 5, 4, 3) if note else (8,):
            launches = [window_launch(device, cut, (m,), (out,), activations(m, x), n_rows, True) for m in matrices]
            wrong = int((result(launches[0], n_rows) != wanted[: n_rows * case.n_out]).sum())
            n_wrong += wrong > 0
            label = f"{cut.turns},{cut.units},{cut.stages},{cut.held}{note} {blocks_of(case.n_out, cut.turns)} blocks"
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
        for n_blocks in (kept, 7) if case is CASES[0] else (kept,):
            rows.ONE_ROW_BLOCKS = n_blocks
            rows.dense_rows.cache_clear()
            launches = [dp4a_launch(device, m, x, 1, out) for m in matrices]
            bench.note(f"{case.name} {case.form} row 1, registers of {n_blocks} blocks", timed_us(device, launches), n_bytes)
        rows.ONE_ROW_BLOCKS = kept
        rows.dense_rows.cache_clear()
        del matrices, x, out
        bench.free()


def main(argv: list[str]) -> int:
    every, argv = "--all" in argv, [word for word in argv if word != "--all"]
    bench = Bench()
    copy = copy_gb_per_s(bench.device)
    print(f"{bench.device.card.name}: device copy {copy:.0f} GB/s; cuts are turns,units,stages,blocks held", flush=True)
    n_wrong = sum(measured(bench, case, every) for case in CASES)
    one_row(bench)
    print(f"{n_wrong} variants with other bits than the dp4a kernels")
    if argv:
        results = [dict(name=r.name, us=r.us, gb_per_s=r.gb_per_s) for r in bench.results]
        with open(argv[0], "w") as file:
            json.dump({"card": bench.device.card.name, "copy_gb_per_s": copy, "results": results}, file, indent=1)
    return int(n_wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
