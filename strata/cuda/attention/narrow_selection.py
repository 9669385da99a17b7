"""The choice of cells among few blocks: every key stays in a register.

Rule and order of selection.py, for contexts whose blocks number a few a thread.  The key of the last whole block is found bit by bit:
a barrier counts the threads whose key reaches the candidate.  The search ends early once exactly the wanted number of blocks
does; what lies below the candidate then takes the place of the equal ones, so that either end leaves one rule to the placing.
One thread block per row.  Flat shapes: scores [rows, most_blocks]; cells int32 [rows, width]; counts int32 [rows].
Does not know: how scores are made.
"""

from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.machine.on_cuda import key
from strata.cuda.machine.seam import Target, jit, kernel, launch_dependents, wait_for_dependency
from strata.cuda.machine.warps import ballot, count_bits, integers, lower_lanes

TOP_BIT, ONE, NOTHING = np.uint32(0x80000000), np.uint32(1), np.uint32(0)
NO_BLOCK = np.int32(0x7FFFFFFF)
LOWEST = np.int32(-0x80000000)
LOW_HALF = np.int32(0xFFFF)
CUTS = ((64, 1), (256, 1), (1024, 1), (1024, 2), (1024, 4))
"""(threads, keys a thread): the first that holds all blocks of a context class is taken."""


def cut_of(most_blocks: int) -> tuple[int, int] | None:
    """Return (threads, keys a thread) for a context class, or None where it has too many blocks."""
    return next((cut for cut in CUTS if cut[0] * cut[1] >= most_blocks), None)


def _search(n_keys: int):
    """Build `find(digits, n_whole)`: a key d such that the blocks above it number at most n_whole, and with those equal to it
    at least n_whole."""

    @jit
    def find(digits, n_whole):
        found, bit = NOTHING, np.int32(31)
        while bit >= 0:
            candidate = np.uint32(found | np.uint32(ONE << np.uint32(bit)))
            n = np.int32(0)
            for k in range(n_keys):
                n = np.int32(n + cuda.syncthreads_count(np.int32(1 if digits[k] >= candidate else 0)))
            if n >= n_whole:
                found = candidate
            bit = np.int32(bit - 1)
            if n == n_whole:
                found, bit = np.uint32(candidate - ONE), np.int32(-1)
        return found

    return find


def _best_below(n_keys: int, n_threads: int, target: Target):
    """Build `note(...)`: a warp's best block below a key to shared memory; `best(...)`: the best of all warps."""
    largest, n_warps = integers(target).largest, n_threads // 32

    @jit
    def smallest(x):
        return np.int32(~largest(np.int32(~x)))

    @jit
    def note(digits, found, n_blocks, thread, keys, blocks):
        best, block = LOWEST, NO_BLOCK
        for k in range(n_keys):
            b = np.int32(thread + k * n_threads)
            mine = np.int32(digits[k] ^ TOP_BIT)
            if b < n_blocks and digits[k] < found and (block == NO_BLOCK or mine > best):
                best, block = mine, b
        top = largest(best)
        first = smallest(block if best == top else NO_BLOCK)
        if thread & 31 == 0:
            keys[thread >> 5], blocks[thread >> 5] = top, first

    @jit
    def best(keys, blocks, lane):
        own = blocks[lane] if lane < n_warps else NO_BLOCK
        mine = keys[lane] if own != NO_BLOCK else LOWEST
        top = largest(mine)
        return smallest(own if mine == top else NO_BLOCK)

    return note, best


@cache
def narrow_kernel(block: int, width: int, n_threads: int, n_keys: int, target: Target):
    """Return kernel(scores, positions, most_blocks, cells, counts); grid (rows), n_threads threads."""
    n_warps, n_counts, together = n_threads // 32, n_keys * 32, integers(target)
    find, (note, best) = _search(n_keys), _best_below(n_keys, n_threads, target)
    sum_of = together.sum
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(n_threads)
    def run(scores, positions, most_blocks, cells, counts):
        counted = cuda.shared.array(n_counts, np.int32)
        keys = cuda.shared.array(32, np.int32)
        blocks = cuda.shared.array(32, np.int32)
        digits = cuda.local.array(n_keys, np.uint32)
        go_on()
        wait_before()
        thread, row = np.int32(cuda.threadIdx.x), np.int32(cuda.blockIdx.x)
        lane, warp = thread & 31, thread >> 5
        base, out = np.int64(row) * most_blocks, np.int64(row) * width
        # Scores of blocks that the row lacks are read and not used: no load waits for the position.
        for k in range(n_keys):
            b = np.int32(thread + k * n_threads)
            digits[k] = np.uint32(np.uint32(key(scores[base + min(b, np.int32(most_blocks - 1))])) ^ TOP_BIT)
        n_cells = np.int32(positions[row] + 1)
        if n_cells <= width:
            for cell in range(thread, n_cells, n_threads):
                cells[out + cell] = cell
            if thread == 0:
                counts[row] = n_cells
            return
        n_blocks = np.int32(n_cells // block)
        n_tail = np.int32(n_cells - n_blocks * block)
        n_whole, n_part = np.int32((width - n_tail) // block), np.int32((width - n_tail) % block)
        for k in range(n_keys):
            if thread + k * n_threads >= n_blocks:
                digits[k] = NOTHING
        found = find(digits, n_whole)
        for k in range(n_keys):
            inside = thread + k * n_threads < n_blocks
            above, level = ballot(inside and digits[k] > found), ballot(inside and digits[k] == found)
            if lane == 0:
                counted[32 * k + warp] = count_bits(above) | (count_bits(level) << 16)
        note(digits, found, n_blocks, thread, keys, blocks)
        cuda.syncthreads()
        n_above = n_level = np.int32(0)
        for k in range(n_keys):
            packed = sum_of(counted[32 * k + lane] if lane < n_warps else np.int32(0))
            n_above, n_level = np.int32(n_above + (packed & LOW_HALF)), np.int32(n_level + (packed >> 16))
        n_level_taken = np.int32(n_whole - n_above)
        # Without a part, or where it ranks among the equal ones, no other block is looked for.
        part_block = best(keys, blocks, lane) if n_part > 0 and n_level_taken == n_level else NO_BLOCK
        greater = equal = np.int32(0)
        for k in range(n_keys):
            own = counted[32 * k + lane] if lane < n_warps else np.int32(0)
            packed, whole = sum_of(own if lane < warp else np.int32(0)), sum_of(own)
            b = np.int32(thread + k * n_threads)
            above, level = b < n_blocks and digits[k] > found, b < n_blocks and digits[k] == found
            below = lower_lanes(lane)
            before = np.int32(greater + (packed & LOW_HALF) + count_bits(ballot(above) & below))
            level_before = np.int32(equal + (packed >> 16) + count_bits(ballot(level) & below))
            is_whole = above or (level and level_before < n_level_taken)
            if part_block == NO_BLOCK:
                is_part, part_before = level and level_before == n_level_taken, level_before > n_level_taken
            else:
                is_part, part_before = b == part_block, b > part_block
            at = out + (before + min(level_before, n_level_taken)) * block + (n_part if part_before else 0)
            n_taken = block if is_whole else (n_part if is_part else 0)
            for offset in range(n_taken):
                cells[at + offset] = b * block + offset
            greater, equal = np.int32(greater + (whole & LOW_HALF)), np.int32(equal + (whole >> 16))
        if thread < n_tail:
            cells[out + width - n_tail + thread] = n_blocks * block + thread
        if thread == 0:
            counts[row] = width

    return run
