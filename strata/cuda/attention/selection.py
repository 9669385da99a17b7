"""The choice of cells: exactly `width` of them, the tail first, then cells of complete blocks by score.

Rule `fill` of host/indexer.py.  Blocks rank by (score's key descending, index ascending); the best n_whole are taken whole and
the next one gives its first n_part cells.  One thread block per row: the key of the last whole block is found digit by digit
(four histograms of integers, whose counts have no order), then two ascending passes place the cells.  A row with no more than
`width` cells takes them all.  Flat shapes: scores [rows, most_blocks]; cells int32 [rows, width]; counts int32 [rows].
Contexts of few blocks go to narrow_selection.py.  Does not know: how scores are made.
"""

from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.attention.narrow_selection import cut_of, narrow_kernel
from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.machine.on_cuda import key
from strata.cuda.machine.seam import Target, jit, kernel, launch_dependents, shuffle_int, wait_for_dependency
from strata.cuda.machine.shapes import require
from strata.cuda.machine.warps import ballot, count_bits, largest_int, lower_lanes, lowest_lane, smallest_int, sum_int
from strata.cuda.memory.window_tables import WindowTables
from strata.model.config import ModelConfig

WARPS = 16
THREADS = 32 * WARPS
BINS = 256
TOP_BIT = np.uint32(0x80000000)
NO_BLOCK = np.int32(0x7FFFFFFF)
LOWEST = np.int32(-0x80000000)
DIGIT, REMAINING, EQUAL, PART = 0, 1, 2, 3
"""Places in the block's shared words: the digit found, how many are still to take, blocks equal to the last, the part block."""


@jit
def _digits(score):
    """The score's key as an unsigned integer of the same order."""
    return np.uint32(np.uint32(key(score)) ^ TOP_BIT)


@jit
def _count_digit(histogram, digit, matches, lane):
    """Add a warp's digits to the histogram; the first matching thread adds all that have its digit."""
    active = ballot(matches)
    if active == 0:
        return
    leader = lowest_lane(active)
    common = shuffle_int(digit, leader)
    same = ballot(matches and digit == common)
    if lane == leader:
        cuda.atomic.add(histogram, common, count_bits(same))
    if matches and digit != common:
        cuda.atomic.add(histogram, digit, 1)


@jit
def _find_digit(histogram, words, lane):
    """One warp: the digit in which the REMAINING-th largest lies, and how many of it are to take."""
    # Read before the exchanges: one thread changes it behind them.
    remaining = words[REMAINING]
    own = np.int32(0)
    for i in range(8):
        own += histogram[BINS - 1 - 8 * lane - i]
    below = np.int32(0)
    for other in range(32):
        value = shuffle_int(own, np.int32(other))
        below += value if other < lane else 0
    if below < remaining and remaining <= below + own:
        for i in range(8):
            digit = np.int32(BINS - 1 - 8 * lane - i)
            n = histogram[digit]
            if below < remaining and remaining <= below + n:
                words[DIGIT], words[EQUAL] = digit, n
                words[REMAINING] = remaining - below
                remaining = np.int32(0)
            below += n


@jit
def _sum_before(counts, warp, lane):
    """Sum of counts[:warp] of the block's warps, for every thread of the warp."""
    value = counts[lane] if lane < WARPS else np.int32(0)
    return sum_int(value if lane < warp else np.int32(0))


@jit
def _find_last_whole(scores, base, n_blocks, histogram, words, thread):
    """The key of the last block taken whole."""
    lane, found = thread & 31, np.uint32(0)
    for turn in range(4):
        shift = np.uint32(24 - 8 * turn)
        for bin_ in range(thread, BINS, THREADS):
            histogram[bin_] = 0
        cuda.syncthreads()
        for first in range((thread >> 5) * 32, n_blocks, THREADS):
            b = np.int32(first + lane)
            inside = b < n_blocks
            digits = _digits(scores[base + b]) if inside else np.uint32(0)
            shifted = digits >> shift
            matches = inside and (turn == 0 or (shifted >> np.uint32(8)) == found)
            _count_digit(histogram, np.int32(shifted & np.uint32(BINS - 1)), matches, lane)
        cuda.syncthreads()
        if thread < 32:
            _find_digit(histogram, words, lane)
        cuda.syncthreads()
        found = (found << np.uint32(8)) | np.uint32(words[DIGIT])
    return np.int32(found ^ TOP_BIT)


@jit
def _count_blocks(scores, base, begin, end, last, lane, keys, blocks, greater_of, equal_of, warp):
    """A warp's blocks above and equal to the last whole one, and its best block below."""
    greater, equal, best, best_block = np.int32(0), np.int32(0), LOWEST, NO_BLOCK
    for b in range(begin + lane, end, 32):
        k = key(scores[base + b])
        greater += 1 if k > last else 0
        equal += 1 if k == last else 0
        if k < last and (best_block == NO_BLOCK or k > best):
            best, best_block = k, np.int32(b)
    greater, equal = sum_int(greater), sum_int(equal)
    top = largest_int(best)
    block_of = smallest_int(best_block if best == top else NO_BLOCK)
    if lane == 0:
        greater_of[warp], equal_of[warp], keys[warp], blocks[warp] = greater, equal, top, block_of


@jit
def _best_below(keys, blocks, lane):
    """The first of the best blocks that all warps found below the last whole one."""
    own = blocks[lane] if lane < WARPS else NO_BLOCK
    best = keys[lane] if own != NO_BLOCK else LOWEST
    top = largest_int(best)
    return smallest_int(own if best == top else NO_BLOCK)


def _placing(block: int):
    """Build `place_blocks(...)`: write the cells of a warp's blocks, ascending; greater and equal count the blocks before."""

    @jit
    def place_blocks(scores, base, begin, end, last, n_equal_taken, part_block, n_part, greater, equal, lane, cells, out):
        for first in range(begin, end, 32):
            b = np.int32(first + lane)
            inside = b < end
            k = key(scores[base + b]) if inside else LOWEST
            above, level = inside and k > last, inside and k == last
            above_bits, level_bits = ballot(above), ballot(level)
            before = greater + count_bits(above_bits & lower_lanes(lane))
            level_before = equal + count_bits(level_bits & lower_lanes(lane))
            taken_before = before + min(level_before, n_equal_taken)
            is_whole = above or (level and level_before < n_equal_taken)
            if part_block == NO_BLOCK:
                is_part, part_before = level and level_before == n_equal_taken, level_before > n_equal_taken
            else:
                is_part, part_before = inside and b == part_block, b > part_block
            at = out + taken_before * block + (n_part if part_before else 0)
            n_taken = block if is_whole else (n_part if is_part else 0)
            for offset in range(n_taken):
                cells[at + offset] = b * block + offset
            greater += count_bits(above_bits)
            equal += count_bits(level_bits)

    return place_blocks


@cache
def selection_kernel(block: int, width: int, target: Target):
    """Return kernel(scores, positions, most_blocks, cells, counts); grid (rows), THREADS threads."""
    place_blocks, go_on, wait_before = _placing(block), launch_dependents(target), wait_for_dependency(target)

    @kernel(THREADS)
    def run(scores, positions, most_blocks, cells, counts):
        histogram = cuda.shared.array(BINS, np.int32)
        words = cuda.shared.array(4, np.int32)
        greater_of = cuda.shared.array(WARPS, np.int32)
        equal_of = cuda.shared.array(WARPS, np.int32)
        keys = cuda.shared.array(WARPS, np.int32)
        blocks = cuda.shared.array(WARPS, np.int32)
        go_on()
        wait_before()
        thread, row = np.int32(cuda.threadIdx.x), np.int32(cuda.blockIdx.x)
        lane, warp = thread & 31, thread >> 5
        n_cells = positions[row] + 1
        out = np.int64(row) * width
        if n_cells <= width:
            for cell in range(thread, n_cells, THREADS):
                cells[out + cell] = cell
            if thread == 0:
                counts[row] = n_cells
            return
        base = np.int64(row) * most_blocks
        n_blocks = np.int32(n_cells // block)
        n_tail = np.int32(n_cells - n_blocks * block)
        n_whole, n_part = np.int32((width - n_tail) // block), np.int32((width - n_tail) % block)
        if thread == 0:
            words[REMAINING] = n_whole
        last = _find_last_whole(scores, base, n_blocks, histogram, words, thread)
        n_equal_taken, n_equal = words[REMAINING], words[EQUAL]
        share = np.int32((n_blocks + THREADS - 1) // THREADS * 32)
        begin, end = warp * share, min(np.int32((warp + 1) * share), n_blocks)
        _count_blocks(scores, base, begin, end, last, lane, keys, blocks, greater_of, equal_of, warp)
        cuda.syncthreads()
        # Without a part, or where it ranks among the equal ones, no other block is looked for.
        part_block = NO_BLOCK
        if n_part > 0 and n_equal_taken == n_equal:
            part_block = _best_below(keys, blocks, lane)
        greater, equal = _sum_before(greater_of, warp, lane), _sum_before(equal_of, warp, lane)
        place_blocks(scores, base, begin, end, last, n_equal_taken, part_block, n_part, greater, equal, lane, cells, out)
        if thread < n_tail:
            cells[out + width - n_tail + thread] = n_blocks * block + thread
        if thread == 0:
            counts[row] = width

    return run


def launch_selection(
    device: CudaDevice, config: ModelConfig, window: WindowTables, scores, most_blocks: int, cells, counts, programmatic: bool = False
) -> Launch:
    """cells int32 [rows, width], ascending, and counts [rows]; scores as `indexer.launch_scores` left them."""
    block, width = config.indexer_block, config.selection_width
    require(width >= 2 * block, f"selection of {width} cells", "one whole block must always be taken")
    arguments = (scores, window.positions, np.int32(most_blocks), cells, counts)
    cut = cut_of(most_blocks)
    n_threads = cut[0] if cut else THREADS
    run = narrow_kernel(block, width, *cut, device.target) if cut else selection_kernel(block, width, device.target)
    return Launch(device, run, Shape((window.n_rows, 1), n_threads), arguments, programmatic)
