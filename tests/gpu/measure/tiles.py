"""Measures tilings of prompt chunks' quantised products against each other:  python -m tests.gpu.measure.tiles [--once] [FORMAT ...]

At the real model's geometry: dense products of 2,048 rows, and listed experts with 40 (all 512 listed) and 85 rows each (240 listed);
of the formats named, or all.  The first tiling of a case is what a card of compute capability 9.0 takes.  Every tiling must give the bits of the dp4a kernels; the exit status is 1 where one does not.  `--once`
launches each case once, without timing, to be run under a profiler; `--build FOLDER` compiles the kernels ahead, without a card, into
a folder for STRATA_CUDA_KERNELS (compute capability 9.0).  Tilings are told as bands, columns, sets, units, stages, min_blocks,
side_by_side, turns.
"""

import shutil
import sys
from glob import glob

import numpy as np

from strata.cuda.packed.products import Packed, code, dense_tiled, listed, listed_tiled, make_coded, make_lists, plan
from strata.cuda.packed.tile_choice import CHUNK, CHUNK_IN_PAIRS, EXPERTS, LOW
from strata.cuda.packed.tiles import Tile, layout_of
from strata.formats.table import by_name
from tests.unit.formats.blocks import random_blocks

N_ROWS, N_USED = 2048, 10
DENSE = (
    ("Q4_K", ((10240, 2560), (2560, 6144)), (CHUNK_IN_PAIRS, CHUNK, LOW)), ("Q4_0", ((2560, 640),), (CHUNK, LOW)),
    ("Q2_0", ((640, 2560), (10240, 2560)), (CHUNK, LOW)), ("Q8_0", ((640, 2560), (10240, 2560)), (CHUNK, LOW)),
)
LISTED = (
    ("Q4_K", ((640, 2560),), (LOW, EXPERTS, CHUNK_IN_PAIRS)), ("Q4_0", ((2560, 640),), (LOW, EXPERTS, CHUNK_IN_PAIRS)),
    *((name, ((640, 2560), (2560, 640)), (LOW, EXPERTS)) for name in ("Q2_0", "Q5_0", "Q8_0", "IQ4_NL")),
)
N_LISTED = (512, 240)


def label_of(tile: Tile) -> str:
    return ",".join(str(getattr(tile, name)) for name in tile.__dataclass_fields__)


class Comparison:
    """Cases on one card; each is compared, and timed unless `once`."""

    def __init__(self, once: bool) -> None:
        from strata.cuda.card.device import CudaDevice

        self.device, self.once, self.rng, self.n_wrong = CudaDevice(0), once, np.random.default_rng(5), 0

    def matrix(self, name: str, n_out: int, n_in: int, n_experts: int) -> Packed:
        """A table of experts that repeats one random megabyte, with a shift for each."""
        form = by_name(name)
        each = n_out * (n_in // form.block_weights) * form.block_bytes
        blocks = random_blocks(form, (1 << 20) // form.block_bytes, 3).reshape(-1)
        raw = np.tile(blocks, -(-n_experts * each // blocks.size))[: n_experts * each]
        return Packed(self.device.upload("weights", np.concatenate((raw, np.zeros(-raw.size % 16, np.uint8)))), form.type_id, n_out, n_in, each)

    def coded(self, n_rows: int, n: int):
        x = self.device.upload("rows", self.rng.standard_normal(n_rows * n).astype(np.float32))
        coded = make_coded(self.device, "rows", n_rows, n)
        code(self.device, x, coded, n_rows).go()
        return coded

    def lists(self, n_experts: int, n_entries: int, n_rows: int):
        """Entries spread over n_experts at random; where there are as many rows as entries, each entry has its own."""
        chosen = np.sort(self.rng.integers(0, n_experts, n_entries))
        experts, counts = np.unique(chosen, return_counts=True)
        rows = np.arange(n_entries) if n_rows == n_entries else self.rng.integers(0, n_rows, n_entries)
        made = make_lists(self.device, "lists", len(experts), n_entries, (LOW.n_rows, EXPERTS.n_rows))
        starts = np.concatenate(([0], np.cumsum(counts)))
        for array, values in ((made.experts, experts), (made.starts, starts), (made.entry_rows, rows), (made.n_listed, [len(experts)])):
            array.copy_to_device(np.asarray(values, np.int32))
        return made

    def note(self, label: str, tile: Tile, launch, out, wanted: np.ndarray, n_operations: float) -> None:
        from tests.gpu.measure.products import timed_us

        out.copy_to_device(np.full(out.size, np.nan, np.float32))
        launch.go()
        self.device.synchronise()
        same = np.array_equal(out.copy_to_host().view(np.uint32), wanted.view(np.uint32))
        self.n_wrong += not same
        us = 0.0 if self.once else timed_us(self.device, [launch] * 4)
        speed = "" if self.once else f"{us:9.1f} us {1e-6 * n_operations / us:7.1f} TOPS"
        print(f"{label:44s} {label_of(tile):20s} {speed} {'same bits' if same else 'OTHER BITS'}", flush=True)

    def free(self) -> None:
        self.device.synchronise()
        for purpose in list(self.device.taken):
            self.device.give_back(purpose)

    def dense(self, name: str, n_out: int, n_in: int, tiles) -> None:
        weights, x = self.matrix(name, n_out, n_in, 1), self.coded(N_ROWS, n_in)
        lists, out = self.lists(1, N_ROWS, N_ROWS), self.device.empty("out", N_ROWS * n_out, np.float32)
        listed(self.device, weights, x, lists, out).go()
        self.device.synchronise()
        wanted = out.copy_to_host()
        for tile in tiles:
            launch = dense_tiled(self.device, weights, x, N_ROWS, out, tile)
            self.note(f"dense {name} {n_out}x{n_in}", tile, launch, out, wanted, 2.0 * N_ROWS * n_out * n_in)
        del weights, x, lists, out, launch
        self.free()

    def experts(self, name: str, n_out: int, n_in: int, n_listed: int, tiles) -> None:
        n_entries = N_ROWS * N_USED
        n_rows = n_entries if n_out > n_in else N_ROWS
        weights, x = self.matrix(name, n_out, n_in, n_listed), self.coded(n_rows, n_in)
        lists, out = self.lists(n_listed, n_entries, n_rows), self.device.empty("out", n_entries * n_out, np.float32)
        listed(self.device, weights, x, lists, out).go()
        self.device.synchronise()
        wanted = out.copy_to_host()
        for tile in tiles:
            for cut in plan(self.device, lists, (weights,), tile=tile):
                cut.go()
            launch = listed_tiled(self.device, weights, x, lists, out, tile=tile)
            label = f"experts {name} {n_out}x{n_in}, {n_entries / n_listed:.0f} rows each"
            self.note(label, tile, launch, out, wanted, 2.0 * n_entries * n_out * n_in)
        del weights, x, lists, out, launch
        self.free()


def build_ahead(folder: str) -> int:
    """Compile every kernel that the cases need but the smallest, for compute capability 9.0."""
    from pathlib import Path

    from strata.cuda.card.building import KernelFolder, build
    from strata.cuda.machine.seam import target_of
    from strata.cuda.packed.rows import expert_rows
    from strata.cuda.packed.tile_kernels import dense_tiles, expert_tiles
    from strata.split.devices import usable_cores
    from tests.ptx import catalogue

    target, wanted = target_of((9, 0)), []
    signatures = [catalogue._signature(text) for text in (catalogue.DENSE_TILES, catalogue.EXPERT_TILES, catalogue.EXPERT_ROWS)]
    for cases, make, signature in ((DENSE, dense_tiles, signatures[0]), (LISTED, expert_tiles, signatures[1])):
        wanted += [(make(by_name(name).type_id, tile, target), signature) for name, _, tiles in cases for tile in tiles]
    wanted += [(expert_rows(by_name(name).type_id, target), signatures[2]) for name in sorted({name for name, *_ in (*DENSE, *LISTED)})]
    built = build(KernelFolder(Path(folder), True, (9, 0)), wanted, usable_cores(), lambda done, n: None)
    print(f"{built.n_wanted} kernels needed, {built.n_there} were there, {built.n_compiled} compiled in {built.seconds:.1f} s")
    print("\n".join(built.failures))
    return int(bool(built.failures))


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--build"]:
        return build_ahead(arguments[1])
    profilers = [path for path in (shutil.which("ncu"), *sorted(glob("/usr/local/cuda*/bin/ncu"))) if path]
    print(f"profiler: {profilers[0]} (use --once)" if profilers else "profiler: none found")
    comparison, named = Comparison(once="--once" in arguments), [text for text in arguments if text != "--once"]
    dense_cases, listed_cases = ([case for case in cases if not named or case[0] in named] for cases in (DENSE, LISTED))
    for name, tiles in {(name, tiles) for name, _, tiles in (*dense_cases, *listed_cases)}:
        print(f"{name}: " + ", ".join(f"{label_of(tile)} takes {layout_of(by_name(name).type_id, tile).shared_bytes >> 10} KB" for tile in tiles))
    for name, shapes, tiles in dense_cases:
        for n_out, n_in in shapes:
            comparison.dense(name, n_out, n_in, tiles)
    for name, shapes, tiles in listed_cases:
        for n_out, n_in in shapes:
            for n_listed in N_LISTED:
                comparison.experts(name, n_out, n_in, n_listed, tiles)
    print("all bits are those of the dp4a kernels" if not comparison.n_wrong else f"{comparison.n_wrong} cases have OTHER BITS")
    return int(bool(comparison.n_wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
