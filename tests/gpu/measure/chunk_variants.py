"""Launches of prompt chunks of 2,048 rows at the real geometry, other ways against those in force: python -m tests.gpu.measure.chunk_variants [--build FOLDER] [ROOM ...].

A figure is the time of a launch (or of the launches that take its place) in a graph of several, microseconds, beside the floor: the
larger of bytes at COPY_BYTES_PER_US and products and additions at FLOATS_PER_US, both measured on an H200.  Each way has to give the bits
of the first one of its room, the one in force; the exit status is 1 where one does not.  --build compiles all kernels ahead, without a
card, into FOLDER: name it in STRATA_CUDA_KERNELS afterwards.  Some sixteen kernels, under half a minute.

    down, router, value, alpha     float products of the streams and of 2,560 columns; up: of 320 columns
    combine                        the experts' outputs combined where a stream is written, or by a launch ahead of it
    mix                            streams mixed with their gates, all values read before the first is used
    message                        a tier's rows for the CPU pool written by one block, or by several (mapped memory; bits not compared)
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from numba import cuda

from strata.cuda.card.launch import Launch, Shape
from strata.cuda.experts.combine import Combined, combiner_of_four, launch_combine
from strata.cuda.machine.on_cuda import sigmoid
from strata.cuda.machine.seam import Target, div, fma, kernel, launch_dependents, mul, wait_for_dependency
from strata.cuda.machine.stores import copy_floats, store_four_floats
from strata.cuda.packed.group_codes import arrays_of, group_coder
from strata.cuda.packed.products import floats, make_coded
from strata.cuda.residual.streams import ROW_THREADS, launch_mix, launch_write_normalise, threads_of
from tests.gpu.geometry import REAL
from tests.gpu.measure.operations import time_us
from tests.gpu.measure.variants import Variant
from tests.gpu.support import folded_bits

C, N_ROWS, SETS = REAL, 2048, 4
COPY_BYTES_PER_US, FLOATS_PER_US = 3.8e6, 30e6
TILES, SHORT, MEETING = (f"strata.cuda.{name}" for name in ("floats.float_tiles", "floats.float_short_tiles", "floats.float_tile_meeting"))
FACTORIES = ((TILES, "float_tiles"), (SHORT, "short_tiles"))
LATE, WHOLE, KEPT = {(TILES, "WIDEN_LATE"): True}, {(SHORT, "WHOLE_COPIES"): True}, {(MEETING, "KEEP_FIRST"): True}
STORED_LATE = {(SHORT, "STORE_LATE"): True}
IN_FORCE = Variant("in force", {}, FACTORIES)
OF_TILES = (IN_FORCE, Variant("widened late", LATE, FACTORIES), Variant("widened late, kept first", LATE | KEPT, FACTORIES))
OF_SHORT = (
    IN_FORCE, Variant("whole copies", WHOLE, FACTORIES), Variant("kept first", KEPT, FACTORIES), Variant("whole copies, kept first", WHOLE | KEPT, FACTORIES),
    Variant("stored late", STORED_LATE, FACTORIES), Variant("whole copies, kept first, stored late", WHOLE | KEPT | STORED_LATE, FACTORIES),
)
FLOATS = {
    "down": (C.low_rank, C.residual_width, OF_TILES), "router": (C.n_experts, C.hidden, OF_TILES), "value": (C.hidden, C.hidden, OF_TILES),
    "alpha": (C.n_ssm_v_heads, C.hidden, OF_TILES), "up": (C.residual_width, C.low_rank, OF_SHORT),
}
MESSAGE_BLOCKS, MESSAGE_THREADS = (1, 4, 16, 64), 1024


@dataclass(frozen=True)
class Room:
    """Ways to do one thing: name, constants in force while launches are made, and `make() -> sets of launches`; what they fill."""

    floor_us: float
    ways: tuple[tuple[str, Variant, Callable[[], list[tuple]]], ...]
    results: tuple = ()
    before: Callable[[], None] = field(default=lambda: None)


@cache
def four_wide_kernel(hidden: int, n_used: int, target: Target):
    """Return kernel(outputs, entry_of, weights, shared, shared_gate, out): a block a row, four neighbouring values a thread at a time."""
    learn, combined = combiner_of_four(hidden, n_used)
    n_threads = threads_of(hidden)
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(n_threads)
    def run(outputs, entry_of, weights, shared, shared_gate, out):
        entries, factors = cuda.local.array(n_used, np.int32), cuda.local.array(n_used, np.float32)
        go_on()
        wait_before()
        row = np.int32(cuda.blockIdx.x)
        gate = learn(entry_of, weights, shared_gate, row, entries, factors)
        for i in range(4 * np.int32(cuda.threadIdx.x), hidden, 4 * n_threads):
            a, b, c, d = combined(outputs, entries, factors, shared, gate, row, np.int32(i))
            store_four_floats(out, 4 * (np.int64(row) * hidden + i), a, b, c, d)

    return run


@cache
def rows_mix_kernel(hidden: int, n_streams: int, target: Target):
    """As strata.cuda.residual.streams.mix_kernel, with all values on their way before the first is used."""
    code_group = group_coder(target)
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(ROW_THREADS)
    def run(normed, gate, mixed, codes, turned, scales, sums):
        values, logits = cuda.local.array(n_streams, np.float32), cuda.local.array(n_streams, np.float32)
        go_on()
        wait_before()
        i, row = np.int32(cuda.grid(1)), np.int32(cuda.blockIdx.y)
        if i >= hidden:
            return
        for c in range(n_streams):
            at = (np.int64(row) * n_streams + c) * hidden + i
            values[c], logits[c] = normed[at], gate[at]
        total = mul(values[0], sigmoid(logits[0]))
        for c in range(1, n_streams):
            total = fma(values[c], sigmoid(logits[c]), total)
        value, at = div(total, np.float32(n_streams)), np.int64(row) * hidden + i
        mixed[at] = value
        code_group(value, i & 31, at >> 5, codes, turned, scales, sums)

    return run


@cache
def message_kernel():
    """Return kernel(values, into, n_fours): any number of blocks of MESSAGE_THREADS."""
    @kernel(MESSAGE_THREADS)
    def run(values, into, n_fours):
        first = np.int32(np.int32(cuda.blockIdx.x) * MESSAGE_THREADS + np.int32(cuda.threadIdx.x))
        copy_floats(values, into, np.int64(0), n_fours, first, np.int32(np.int32(cuda.gridDim.x) * MESSAGE_THREADS))

    return run


def random_floats(card, seed: int, n: int):
    return card.upload("values", np.random.default_rng(seed).standard_normal(n, np.float32))


def float_room(card, n_out: int, n_in: int, variants: tuple[Variant, ...]) -> Room:
    x, out = random_floats(card, 1, N_ROWS * n_in), card.zeros("out", N_ROWS * n_out, np.float32)
    values = np.random.default_rng(2).standard_normal(n_out * n_in, np.float32).view(np.uint32) >> 16
    weights = [card.upload("weights", np.roll(values, s).astype(np.uint16).view(np.uint8)) for s in range(SETS)]
    n_bytes, n_lanes = 2 * n_out * n_in + 4 * N_ROWS * (n_in + n_out), min(n_in, 256)
    floor = max(n_bytes / COPY_BYTES_PER_US, N_ROWS * n_out * (n_in + n_lanes) / FLOATS_PER_US)

    def make():
        return [(floats(card, "BF16", w, n_in, n_out, x, N_ROWS, out),) for w in weights]

    return Room(floor, tuple((variant.name, variant, make) for variant in variants), (out,))


def combine_room(card) -> Room:
    """A layer's last write with the norm of the next read."""
    n, k, hidden, width = N_ROWS, C.n_used, C.hidden, C.residual_width
    first = np.random.default_rng(3).standard_normal(n * width, np.float32)
    residual, normed, y = card.upload("residual", first), card.zeros("normed", n * width, np.float32), card.zeros("y", n * hidden, np.float32)
    outputs, entry_of = random_floats(card, 4, n * (k + 1) * hidden), card.upload("entries", np.random.default_rng(5).permutation(n * k).astype(np.int32))
    weights, gate, inject, norm = (random_floats(card, 6 + i, m) for i, m in enumerate((n * k, n, n * C.n_streams, width)))
    experts = Combined(k, outputs, entry_of, weights, outputs[n * k * hidden :], gate)
    last = {"inject": inject, "norm": norm, "normed": normed}

    def joined():
        return [(launch_write_normalise(card, C, residual, n, experts=experts, **last),)] * SETS

    def apart(combine):
        return lambda: [(combine(), launch_write_normalise(card, C, residual, n, y=y, **last))] * SETS

    def one_wide():
        return launch_combine(card, hidden, experts, n, y)

    def four_wide():
        run = four_wide_kernel(hidden, k, card.target)
        return Launch(card, run, Shape((n, 1), threads_of(hidden)), (*experts.arrays, y))

    ways = ("in force", joined), ("a launch ahead", apart(one_wide)), ("a launch ahead, four values a thread", apart(four_wide))
    floor = 4 * n * (hidden * (k + 1) + 3 * width) / COPY_BYTES_PER_US
    return Room(floor, tuple((name, Variant(name), make) for name, make in ways), (residual, normed), lambda: residual.copy_to_device(first))


def mix_room(card) -> Room:
    n, hidden, width = N_ROWS, C.hidden, C.residual_width
    normed, gate, mixed = random_floats(card, 14, n * width), random_floats(card, 15, n * width), card.zeros("mixed", n * hidden, np.float32)
    coded = make_coded(card, "codes", n, hidden)

    def ahead():
        arguments, shape = (normed, gate, mixed, *arrays_of(coded)), Shape((-(-hidden // ROW_THREADS), n), ROW_THREADS)
        return [(Launch(card, rows_mix_kernel(hidden, C.n_streams, card.target), shape, arguments),)] * SETS

    ways = ("in force", IN_FORCE, lambda: [(launch_mix(card, C, normed, gate, n, mixed, coded),)] * SETS), ("values ahead", IN_FORCE, ahead)
    return Room((8 * n * width + 6 * n * hidden) / COPY_BYTES_PER_US, ways, (mixed, coded.scales))


def message_room(card) -> Room:
    from strata.cuda.tier.mailbox import mapped

    n = N_ROWS * C.hidden
    values, into = random_floats(card, 9, n), mapped(card, n, np.float32).card

    def make(n_blocks):
        return lambda: [(Launch(card, message_kernel(), Shape((n_blocks, 1), MESSAGE_THREADS), (values, into, np.int32(n // 4))),)] * SETS

    ways = tuple((f"{n_blocks} blocks", Variant("in force"), make(n_blocks)) for n_blocks in MESSAGE_BLOCKS)
    return Room(4 * n / COPY_BYTES_PER_US, ways)


def rooms() -> dict[str, Callable[..., Room]]:
    made = {name: lambda card, of=of: float_room(card, *of) for name, of in FLOATS.items()}
    return made | {"combine": combine_room, "mix": mix_room, "message": message_room}


def measured(card, name: str) -> Iterator[tuple[str, bool]]:
    """Yield a line for each way, and whether it has the bits of the first."""
    room, wanted = rooms()[name](card), None
    for label, variant, make in room.ways:
        with variant.in_force():
            sets = make()
        room.before()
        for launch in sets[0]:
            launch.go()
        card.synchronise()
        bits = [folded_bits(array.copy_to_host()) for array in room.results]
        wanted = wanted or bits
        is_equal = all(np.array_equal(a, b) for a, b in zip(wanted, bits, strict=True))
        yield f"{name:8s} {label:40s} {time_us(card, sets):9.1f} us, floor {room.floor_us:7.1f}{'' if is_equal else '  OTHER BITS'}", is_equal


def build_all(folder: str, names: list[str]) -> int:
    """Compile the kernels of all ways; returns 1 where one failed."""
    from strata.cuda.card.blueprint import Blueprint
    from strata.cuda.card.building import KernelFolder, build
    from strata.split.devices import usable_cores

    card = Blueprint((9, 0))
    for name in names:
        for _, variant, make in rooms()[name](card).ways:
            with variant.in_force():
                make()
    Path(folder).mkdir(parents=True, exist_ok=True)
    built = build(KernelFolder(Path(folder), True, (9, 0)), list(card.needed), usable_cores(), lambda done, n: None)
    print(f"{built.n_wanted} kernels, {built.n_there} were there, {built.n_compiled} compiled in {built.seconds:.1f} s", *built.failures, sep="\n")
    return int(bool(built.failures))


def main(words: list[str]) -> int:
    if words[:1] == ["--build"]:
        return build_all(words[1], words[2:] or list(rooms()))
    from strata.cuda.card.device import CudaDevice

    card, n_wrong = CudaDevice(0), 0
    for name in words or rooms():
        for line, is_equal in measured(card, name):
            print(line, flush=True)
            n_wrong += not is_equal
        for purpose in list(card.taken):
            card.give_back(purpose)
    print("all ways have the bits of the first of their room" if not n_wrong else f"{n_wrong} ways have OTHER BITS")
    return int(n_wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
