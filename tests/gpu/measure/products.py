"""Measures the product kernels of one card:  python -m tests.gpu.measure.products [--chunks] [FILE.json]

Weight bytes per second of small-row products against a device copy (bytes read plus written), tensor-core rates of prompt
chunks, launch costs.  Every case runs as a captured graph over enough copies of its weights that none stays in the cache.
Not a test: it judges nothing.
"""

import json
import sys
import time
from dataclasses import dataclass

import numpy as np

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.found import _checked
from strata.cuda.card.graphs import Graph
from strata.cuda.floats import float_chunks
from strata.cuda.packed.products import Packed, code, dense, dense_tiled, floats, listed, listed_tiled, make_coded, make_lists, plan
from strata.cuda.packed.tile_choice import CHUNK, EXPERTS, LOW, SNUG, WINDOW
from strata.cuda.packed.tiles import Tile
from strata.formats.table import by_name
from tests.unit.formats.blocks import random_blocks

WORKING_SET = 320 << 20
FLOAT_OPERATIONS_PER_US, COPY_BYTES_PER_US = 33.5e6, 4.3e6
"""Of an H200: fused multiply-adds in a microsecond (67 TFLOPS), bytes copied."""
CHUNK_TILES = (
    CHUNK, EXPERTS, SNUG, Tile(2, 8, 1, 1, 3, 1, 2), Tile(2, 8, 1, 1, 4, 1, 4), Tile(2, 8, 1, 2, 2, 1, 4), Tile(2, 16, 1, 1, 3, 1, 2),
    Tile(4, 8, 1, 1, 3, 1, 2), Tile(4, 8, 1, 1, 3, 1, 1),
)
N_TIMES = 9


@dataclass(frozen=True, slots=True)
class Measured:
    name: str
    us: float
    gb_per_s: float
    tops: float
    bound_us: float = 0.0


def timed_us(device: CudaDevice, launches) -> float:
    """Return the median time of one launch in microseconds, over replays of a graph of all of them."""
    from numba import cuda

    graph = Graph(device, launches)
    graph.replay()
    device.synchronise()
    times = []
    for _ in range(N_TIMES):
        begin, end = cuda.event(), cuda.event()
        begin.record(device.stream)
        graph.replay()
        end.record(device.stream)
        end.synchronize()
        times.append(1000 * begin.elapsed_time(end) / len(launches))
    graph.close()
    return float(np.median(times))


def label_of(tile: Tile) -> str:
    known = {CHUNK: " CHUNK", EXPERTS: " EXPERTS", LOW: " LOW", SNUG: " SNUG", WINDOW: " WINDOW"}
    fields = (tile.bands, tile.columns, tile.sets, tile.units, tile.stages, tile.min_blocks, tile.side_by_side)
    return ",".join(map(str, fields)) + known.get(tile, "")


def copy_gb_per_s(device: CudaDevice) -> float:
    """Return the rate of a device-to-device copy of 2 GB, bytes read plus bytes written."""
    from cuda.bindings import driver
    from numba import cuda

    n = 1 << 31
    a, b = device.empty("copy", n, np.uint8), device.empty("copy", n, np.uint8)
    rates = []
    for _ in range(7):
        begin, end = cuda.event(), cuda.event()
        begin.record(device.stream)
        _checked(driver.cuMemcpyDtoDAsync(b.device_ctypes_pointer.value, a.device_ctypes_pointer.value, n, int(device.stream.handle)))
        end.record(device.stream)
        end.synchronize()
        rates.append(2e-6 * n / begin.elapsed_time(end))
    del a, b
    device.give_back("copy")
    return float(np.median(rates))


class Bench:
    """Cases on one device; prints each as it is measured."""

    def __init__(self) -> None:
        self.device = CudaDevice(0)
        self.results: list[Measured] = []
        self.rng = np.random.default_rng(1)

    def note(self, name: str, us: float, n_bytes: float = 0.0, n_operations: float = 0.0, bound_us: float = 0.0) -> None:
        result = Measured(name, us, 1e-3 * n_bytes / us, 1e-6 * n_operations / us, bound_us)
        self.results.append(result)
        bound = f" bound {bound_us:7.1f} us" if bound_us else ""
        print(f"{name:64s} {us:9.2f} us {result.gb_per_s:8.0f} GB/s {result.tops:7.1f} TOPS{bound}", flush=True)

    def packed(self, form, n_out: int, n_in: int, n_experts: int = 1, copies: int = 1) -> list[Packed]:
        """Return `copies` matrices in one allocation; all repeat one random megabyte."""
        size = n_experts * n_out * (n_in // form.block_weights) * form.block_bytes
        blocks = random_blocks(form, (1 << 20) // form.block_bytes, 3).reshape(-1)
        whole = self.device.empty("weights", copies * size, np.uint8)
        whole.copy_to_device(np.tile(blocks, -(-copies * size // blocks.size))[: copies * size])
        each = n_out * (n_in // form.block_weights) * form.block_bytes
        return [Packed(whole[i * size : (i + 1) * size], form.type_id, n_out, n_in, each) for i in range(copies)]

    def coded(self, n_rows: int, n: int):
        x = self.device.upload("rows", self.rng.standard_normal(n_rows * n).astype(np.float32))
        coded = make_coded(self.device, "rows", n_rows, n)
        code(self.device, x, coded, n_rows).go()
        return coded

    def free(self) -> None:
        self.device.synchronise()
        for purpose in list(self.device.taken):
            self.device.give_back(purpose)

    def small(self, name: str, n_out: int, n_in: int, row_counts, tile=None, programmatic: bool = True) -> None:
        form = by_name(name)
        n_bytes = n_out * (n_in // form.block_weights) * form.block_bytes
        copies = max(2, min(64, WORKING_SET // n_bytes))
        matrices, x = self.packed(form, n_out, n_in, copies=copies), self.coded(8, n_in)
        out = self.device.empty("out", 8 * n_out, np.float32)
        for n_rows in row_counts:
            if tile:
                launches = [dense_tiled(self.device, m, x, n_rows, out, tile, programmatic) for m in matrices]
            else:
                launches = [dense(self.device, m, x, n_rows, out, programmatic) for m in matrices]
            label = f"{name} {n_out}x{n_in} rows {n_rows}{' tile' if tile else ''}{'' if programmatic else ' plain'}"
            self.note(label, timed_us(self.device, launches), n_bytes, 2.0 * n_rows * n_out * n_in)
        del matrices, x, out
        self.free()

    def experts(self, name: str, n_out: int, n_in: int, n_entries: int) -> None:
        form, n_experts = by_name(name), 512
        weights, x = self.packed(form, n_out, n_in, n_experts)[0], self.coded(8, n_in)
        out = self.device.empty("out", n_entries * n_out, np.float32)
        launches, n_distinct = [], 0
        for _ in range(30):
            lists = make_lists(self.device, "lists", n_entries, n_entries)
            entries = np.concatenate([self.rng.choice(n_experts, 10, replace=False) for _ in range(n_entries // 10)])
            experts, counts = np.unique(entries, return_counts=True)
            n_distinct += len(experts)
            lists.experts[: len(experts)].copy_to_device(experts.astype(np.int32))
            lists.starts[: len(experts) + 1].copy_to_device(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))
            lists.n_listed.copy_to_device(np.array([len(experts)], np.int32))
            launches.append(listed(self.device, weights, x, lists, out, programmatic=True))
        n_bytes = n_distinct / 30 * weights.expert_bytes
        self.note(f"experts {name} {n_out}x{n_in}, {n_entries} entries", timed_us(self.device, launches), n_bytes)
        del weights, x, out, launches, lists
        self.free()

    def chunk(self, name: str, n_rows: int, n_out: int, n_in: int, tiles) -> None:
        form = by_name(name)
        matrices, x = self.packed(form, n_out, n_in, copies=4), self.coded(n_rows, n_in)
        out = self.device.empty("out", n_rows * n_out, np.float32)
        for tile in tiles:
            launches = [dense_tiled(self.device, m, x, n_rows, out, tile) for m in matrices]
            us = timed_us(self.device, launches)
            bound = n_rows * n_out * n_in / 32 * (5 if form.has_offset else 3) / FLOAT_OPERATIONS_PER_US
            self.note(f"chunk {name} {n_rows} rows {n_out}x{n_in} tile {label_of(tile)}", us, 0, 2.0 * n_rows * n_out * n_in, bound)
        del matrices, x, out
        self.free()

    def chunk_experts(self, name: str, n_rows: int, n_out: int, n_in: int) -> None:
        form, n_experts, n_used = by_name(name), 512, 10
        weights, x = self.packed(form, n_out, n_in, n_experts)[0], self.coded(n_rows, n_in)
        entries = np.concatenate([self.rng.choice(n_experts, n_used, replace=False) for _ in range(n_rows)])
        order = np.argsort(entries, kind="stable")
        counts = np.bincount(entries, minlength=n_experts)
        lists = make_lists(self.device, "lists", n_experts, n_rows * n_used, (LOW.n_rows, EXPERTS.n_rows))
        lists.experts.copy_to_device(np.arange(n_experts, dtype=np.int32))
        lists.starts.copy_to_device(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))
        lists.entry_rows.copy_to_device((order // n_used).astype(np.int32))
        lists.n_listed.copy_to_device(np.array([n_experts], np.int32))
        out = self.device.empty("out", n_rows * n_used * n_out, np.float32)
        self.note(f"plan of {n_rows * n_used} entries", timed_us(self.device, list(plan(self.device, lists, (weights,), tile=EXPERTS)) * 4))
        bound = n_rows * n_used * n_out * n_in / 32 * (5 if form.has_offset else 3) / FLOAT_OPERATIONS_PER_US
        for tile in (LOW, *(t for t in CHUNK_TILES if t.n_rows == EXPERTS.n_rows)):
            for launch in plan(self.device, lists, (weights,), tile=tile):
                launch.go()
            us = timed_us(self.device, [listed_tiled(self.device, weights, x, lists, out, tile=tile)] * 3)
            label = f"chunk experts {name} {n_rows} rows {n_out}x{n_in} tile {label_of(tile)}"
            self.note(label, us, 0, 2.0 * n_rows * n_used * n_out * n_in, bound)
        del weights, x, out, lists
        self.free()

    def float_chunk(self, n_out: int, n_in: int, n_rows: int) -> None:
        """Every kind that takes the shape, the chosen one first; the bound is the larger of 67 TFLOPS and the bytes at copy speed."""
        values = (self.rng.standard_normal(n_out * n_in).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        weights = self.device.upload("weights", values)
        x = self.device.upload("rows", self.rng.standard_normal(n_rows * n_in).astype(np.float32))
        out = self.device.empty("out", n_rows * n_out, np.float32)
        n_bytes = 2 * n_out * n_in + 4 * n_rows * (n_in + n_out)
        bound = max(n_rows * n_out * n_in / FLOAT_OPERATIONS_PER_US, n_bytes / COPY_BYTES_PER_US)
        chosen = float_chunks.kind_of(self.device.card.capability, n_in, n_out, n_rows)
        others = ["few outputs"] if n_out <= 4 else ["lanes", "tiles", *(["short tiles"] if 256 <= n_in <= 512 else [])]
        for kind in dict.fromkeys((chosen, *others)):
            launches = [floats(self.device, "BF16", weights, n_in, n_out, x, n_rows, out, kind=kind)] * 3
            label = f"BF16 {n_out}x{n_in} {n_rows} rows, {kind}{' (chosen)' if kind == chosen else ''}"
            self.note(label, timed_us(self.device, launches), n_bytes, 2.0 * n_rows * n_out * n_in, bound)
        del weights, x, out
        self.free()

    def chunks(self) -> None:
        """Products of prompt chunks at the real geometry."""
        for n_rows in (2048, 512):
            for n_out, n_in in ((320, 10240), (10240, 320), (512, 2560), (128, 2560), (48, 2560), (4, 10240), (1, 2560)):
                self.float_chunk(n_out, n_in, n_rows)
            for name in ("Q4_K", "Q8_0", "Q2_0"):
                self.chunk(name, n_rows, 5120, 2560, CHUNK_TILES)
            for name in ("Q3_K", "Q6_K", "IQ4_XS"):
                self.chunk(name, n_rows, 5120, 2560, (CHUNK, SNUG))
            self.chunk("Q4_K", n_rows, 2560, 6144, (CHUNK, SNUG))
            for n_out, n_in in ((640, 2560), (2560, 640)):
                self.chunk_experts("Q2_0", n_rows, n_out, n_in)
            self.coding(n_rows, 2560)

    def floats(self, n_out: int, n_in: int, row_counts) -> None:
        n_bytes, most = 2 * n_out * n_in, max(row_counts)
        copies = max(2, min(48, WORKING_SET // n_bytes)) if most <= 8 else 2
        whole = self.device.empty("weights", copies * n_bytes, np.uint8)
        values = (self.rng.standard_normal(n_out * n_in).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        whole.copy_to_device(np.tile(values, copies))
        x = self.device.upload("rows", self.rng.standard_normal(most * n_in).astype(np.float32))
        out = self.device.empty("out", most * n_out, np.float32)
        for n_rows in row_counts:
            launches = [
                floats(self.device, "BF16", whole[i * n_bytes : (i + 1) * n_bytes], n_in, n_out, x, n_rows, out, programmatic=True)
                for i in range(copies)
            ]
            self.note(f"BF16 {n_out}x{n_in} rows {n_rows}", timed_us(self.device, launches), n_bytes, 2.0 * n_rows * n_out * n_in)
        del whole, x, out
        self.free()

    def coding(self, n_rows: int, n: int) -> None:
        x = self.device.upload("rows", self.rng.standard_normal(n_rows * n).astype(np.float32))
        coded = make_coded(self.device, "rows", n_rows, n)
        self.note(f"coding {n_rows} x {n}", timed_us(self.device, [code(self.device, x, coded, n_rows, None, True)] * 20), 6.0 * n_rows * n)
        del x, coded
        self.free()

    def launch_costs(self) -> None:
        x, coded = self.device.zeros("rows", 2560, np.float32), make_coded(self.device, "rows", 1, 2560)
        launch = code(self.device, x, coded, 1)
        begin = time.perf_counter()
        for _ in range(300):
            launch.go()
        sent = time.perf_counter() - begin
        self.device.synchronise()
        graph = Graph(self.device, [launch] * 300)
        graph.replay()
        self.device.synchronise()
        begin = time.perf_counter()
        graph.replay()
        replayed = time.perf_counter() - begin
        self.device.synchronise()
        print(f"host time: {1e6 * sent / 300:.2f} us a launch, {1e6 * replayed:.1f} us a replay of 300 launches", flush=True)


def measure_everything(bench: Bench) -> None:
    bench.launch_costs()
    for name in ("Q4_K", "Q2_0", "Q8_0", "Q6_K", "IQ4_XS", "IQ3_S"):
        bench.small(name, 10240, 2560, (1, 8))
    bench.small("Q4_K", 10240, 2560, (2, 3, 4))
    bench.small("Q4_K", 10240, 2560, (3, 4), WINDOW)
    bench.small("Q4_K", 10240, 2560, (1, 8), programmatic=False)
    for name in ("Q4_K", "Q2_0", "Q8_0"):
        bench.small(name, 2560, 5120, (1, 4, 8))
    bench.small("Q4_K", 2560, 5120, (1, 8), programmatic=False)
    bench.small("Q4_K", 2560, 5120, (3, 4), WINDOW)
    bench.small("Q4_K", 2560, 6144, (1, 8))
    bench.small("Q5_K", 248320, 2560, (1, 4, 8))
    for n_entries in (10, 80):
        bench.experts("Q2_0", 640, 2560, n_entries)
        bench.experts("Q2_0", 1280, 2560, n_entries)
        bench.experts("Q2_0", 2560, 640, n_entries)
    bench.floats(324, 10240, (1, 2, 4, 8))
    bench.floats(10240, 320, (1, 8))
    bench.floats(512, 2560, (1, 8))
    bench.coding(1, 2560)
    bench.coding(8, 2560)
    bench.chunks()


def main(argv: list[str]) -> int:
    only_chunks = "--chunks" in argv
    argv = [word for word in argv if word != "--chunks"]
    bench = Bench()
    copy = copy_gb_per_s(bench.device)
    print(f"{bench.device.card.name}: device copy {copy:.0f} GB/s", flush=True)
    if only_chunks:
        bench.chunks()
    else:
        measure_everything(bench)
    if argv:
        results = [dict(name=r.name, us=r.us, gb_per_s=r.gb_per_s, tops=r.tops, bound_us=r.bound_us) for r in bench.results]
        with open(argv[0], "w") as file:
            json.dump({"card": bench.device.card.name, "copy_gb_per_s": copy, "results": results}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
