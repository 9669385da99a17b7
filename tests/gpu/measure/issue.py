"""Measures how a multiprocessor issues what products are made of:  python -m tests.gpu.measure.issue [--build FOLDER]

Kernels of registers only, one block of eight warps on each multiprocessor: two a scheduler, as prompt tiles have them.

    outer      fused multiply-adds of 8 x 8 outer products; bodies of 64 to 2,048 instructions, to see the instruction caches
    tail       what follows a tensor-core product of a format with scales and offsets: 5 operations for each of 4 outputs
    products   tensor-core products of different operands
    together   24 products of four bands x six columns, each with its tail: a prompt tile without its memory

A line tells the cycles of one scheduler per instruction of a warp (1 where nothing but issue bounds), by the multiprocessor's own
counter, and the clock: cycles by nanoseconds of the same kernel.  Not a test: it judges nothing.
"""

import sys
from functools import cache

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.machine.seam import Target, add, clock_ns, fma, from_bits, jit, kernel, mma32, mul

THREADS, WARPS_PER_SCHEDULER = 256, 2
SIDE, BANDS, COLUMNS = 8, 4, 6
ROWS = 2 * BANDS
N_SUMS, N_ROW_VALUES, N_COLUMN_VALUES, N_WORDS = 4 * BANDS * COLUMNS, 3 * ROWS, 4 * COLUMNS, 24
LIFTED = np.int32(0x4B400000)
INSTRUCTIONS = 1 << 17
"""Of a warp, about, in each case."""


@cache
def cycles():
    """Return the intrinsic `count()`: the multiprocessor's cycles, int64."""
    from numba.cuda.extending import intrinsic

    from strata.cuda.machine.intrinsics import LONG, _assembly

    @intrinsic
    def count(typing_context):
        return types.int64(), lambda context, builder, *_: _assembly(builder, LONG, [], "mov.u64 $0, %clock64;", "=l,~{memory}", True)

    return count


def times(step, n: int):
    """Build a function that runs `step(...)` n times, n a power of two, without a branch."""
    if n == 1:
        return step
    half = times(step, n // 2)

    @jit
    def both(sums, rows, columns, words):
        half(sums, rows, columns, words)
        half(sums, rows, columns, words)

    return both


@jit
def next_columns(rows, columns):
    """Other scales and sums for the next step, so that nothing of it is known ahead."""
    for v in range(N_COLUMN_VALUES):
        columns[v] = add(columns[v], rows[v])


@jit
def tail(sums, at, c0, c1, rows, row, columns, column):
    """Two outputs of a row (scale, d, offset): n = (c - lift) scale, sum + (d x) n + (offset x) t for two columns (x, t)."""
    scale, d, offset = rows[row], rows[ROWS + row], rows[2 * ROWS + row]
    x0, x1, t0, t1 = columns[4 * column], columns[4 * column + 1], columns[4 * column + 2], columns[4 * column + 3]
    n0, n1 = fma(from_bits(c0), scale, d), fma(from_bits(c1), scale, d)
    first, second = fma(mul(d, x0), n0, sums[at]), fma(mul(d, x1), n1, sums[at + 1])
    sums[at], sums[at + 1] = fma(mul(offset, x0), t0, first), fma(mul(offset, x1), t1, second)


def outer_step(target: Target):
    @jit
    def step(sums, rows, columns, words):
        for o in range(SIDE):
            for r in range(SIDE):
                sums[SIDE * o + r] = fma(rows[o], columns[r], sums[SIDE * o + r])

    return step, SIDE * SIDE


def blocks_step(product):
    """Build a step of four bands x six columns: `product(...)`, and the tail of each."""

    @jit
    def step(sums, rows, columns, words):
        next_columns(rows, columns)
        for column in range(COLUMNS):
            for band in range(BANDS):
                w, at = 4 * band, 4 * (column * BANDS + band)
                c0, c1, c2, c3 = product(
                    words[w], words[w + 1], words[w + 2], words[w + 3], words[16 + column], words[17 + column], LIFTED, LIFTED, LIFTED, LIFTED
                )
                tail(sums, at, c0, c1, rows, 2 * band, columns, column)
                tail(sums, at + 2, c2, c3, rows, 2 * band + 1, columns, column)
        for v in range(N_WORDS):
            words[v] = np.int32(words[v] + 1)

    return step


def tail_step(target: Target):
    @jit
    def differ(a0, a1, a2, a3, b0, b1, c0, c1, c2, c3):
        return np.int32(a0 ^ b0), np.int32(a1 ^ b1), np.int32(a2 ^ b0), np.int32(a3 ^ b1)

    return blocks_step(differ), 24 * COLUMNS * BANDS + N_COLUMN_VALUES + N_WORDS


def together_step(target: Target):
    return blocks_step(mma32(target)), 21 * COLUMNS * BANDS + N_COLUMN_VALUES + N_WORDS


def products_step(target: Target):
    product = mma32(target)

    @jit
    def step(sums, rows, columns, words):
        for k in range(BANDS):
            w = 4 * k
            words[w], words[w + 1], words[w + 2], words[w + 3] = product(
                words[16], words[17], words[18], words[19], words[20], words[21], words[w], words[w + 1], words[w + 2], words[w + 3]
            )

    return step, BANDS


@cache
def issue_kernel(make, n_times: int, target: Target):
    """Return kernel(n_turns, values, out, taken): taken int64 [blocks][2], cycles and nanoseconds of a block's first warp."""
    body, count = times(make(target)[0], n_times), cycles()

    @kernel(THREADS, 1)
    def run(n_turns, values, out, taken):
        thread = np.int32(cuda.threadIdx.x)
        sums, words = cuda.local.array(N_SUMS, np.float32), cuda.local.array(N_WORDS, np.int32)
        rows, columns = cuda.local.array(N_ROW_VALUES, np.float32), cuda.local.array(N_COLUMN_VALUES, np.float32)
        for v in range(N_SUMS):
            sums[v] = values[thread + v]
        for v in range(N_ROW_VALUES):
            rows[v] = values[thread + 2 * v]
        for v in range(N_COLUMN_VALUES):
            columns[v] = values[thread + 2 * v + 1]
        for v in range(N_WORDS):
            words[v] = np.int32(values[thread + v])
        cuda.syncthreads()
        begin, began = count(), clock_ns()
        turn = np.int32(0)
        while turn < n_turns:
            body(sums, rows, columns, words)
            turn = np.int32(turn + 1)
        end, ended = count(), clock_ns()
        total = np.float32(words[0])
        for v in range(1, N_WORDS):
            total = add(total, np.float32(words[v]))
        for v in range(N_SUMS):
            total = add(total, sums[v])
        out[np.int32(cuda.blockIdx.x) * THREADS + thread] = total
        if thread == 0:
            taken[2 * cuda.blockIdx.x], taken[2 * cuda.blockIdx.x + 1] = end - begin, ended - began

    return run


CASES = (
    ("outer", outer_step, 1), ("outer", outer_step, 4), ("outer", outer_step, 8), ("outer", outer_step, 16), ("outer", outer_step, 32),
    ("tail", tail_step, 1), ("tail", tail_step, 2), ("products", products_step, 8), ("together", together_step, 1), ("together", together_step, 2),
)
"""Name, body, how often it follows itself."""


def build_ahead(folder: str) -> int:
    """Compile the kernels into a folder for STRATA_CUDA_KERNELS (compute capability 9.0)."""
    from pathlib import Path

    from strata.cuda.card.building import KernelFolder, build
    from strata.cuda.machine.seam import target_of

    floats, longs = types.Array(types.float32, 1, "C"), types.Array(types.int64, 1, "C")
    target, signature = target_of((9, 0)), (types.int32, floats, floats, longs)
    wanted = [(issue_kernel(make, n, target), signature) for _, make, n in CASES]
    built = build(KernelFolder(Path(folder), True, (9, 0)), wanted, 1, lambda done, n: None)
    print(f"{built.n_wanted} kernels needed, {built.n_there} were there, {built.n_compiled} compiled in {built.seconds:.1f} s")
    print("\n".join(built.failures))
    return int(bool(built.failures))


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--build"]:
        return build_ahead(arguments[1])
    from strata.cuda.card.device import CudaDevice
    from strata.cuda.card.launch import Launch, Shape

    device, rng = CudaDevice(0), np.random.default_rng(7)
    n_units = device.card.multiprocessors
    values = device.upload("values", rng.standard_normal(512).astype(np.float32))
    for name, make, n_times in CASES:
        per_body = make(device.target)[1] * n_times
        n_turns = INSTRUCTIONS // per_body
        out, taken = device.empty("out", n_units * THREADS, np.float32), device.empty("taken", 2 * n_units, np.int64)
        launch = Launch(device, issue_kernel(make, n_times, device.target), Shape((n_units, 1), THREADS), (np.int32(n_turns), values, out, taken))
        for _ in range(20):
            launch.go()
        device.synchronise()
        found = taken.copy_to_host().reshape(n_units, 2)
        per_instruction = np.median(found[:, 0]) / (n_turns * per_body * WARPS_PER_SCHEDULER)
        clock = np.median(found[:, 0] / found[:, 1])
        print(f"{name:10s} bodies of {per_body:5d}: {per_instruction:6.3f} cycles an instruction, {clock:6.3f} GHz", flush=True)
        del out, taken, launch
        device.give_back("out")
        device.give_back("taken")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
