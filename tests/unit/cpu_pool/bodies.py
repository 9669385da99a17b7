"""Small kernels that fork, shared by the tests of the team; run as a module, checks one of them in a fresh process."""

import sys

import numpy as np

from strata.cpu_pool.fork import fork
from strata.cpu_pool.job import claim, run_claimed
from strata.cpu_pool.team import Team
from strata.numerics.cpu import jit, kernel


@jit
def scale_items(begin, end, arguments):
    values, out, factor, offset, is_negative = arguments
    for i in range(begin, end):
        out[i] += values[i] * factor + offset
        if is_negative:
            out[i] = -out[i]


@kernel
def scale(control, values, out, factor, offset, is_negative, grain):
    """Add values * factor + offset to out, once for each item."""
    fork(control, scale_items, values.shape[0], grain, (values, out, factor, offset, is_negative))


@jit
def note_range(begin, end, arguments):
    begins, ends = arguments
    for i in range(begin, end):
        begins[i] = begin
        ends[i] = end


@kernel
def note_ranges(control, begins, ends, grain):
    """Write for each item the range that it was run in."""
    fork(control, note_range, begins.shape[0], grain, (begins, ends))


@jit
def count_item(begin, end, arguments):
    counts, step = arguments
    for i in range(begin, end):
        counts[i] += step


@kernel
def hammer(control, counts, n_forks, n_other_items):
    """Fork n_forks times with other arguments and sizes each time: counts[i] grows by 0 + 1 + ... where it is in reach."""
    for step in range(n_forks):
        n_items = counts.shape[0] if step % 2 == 0 else n_other_items
        fork(control, count_item, n_items, 1, (counts, step))


@jit
def count_slowly(begin, end, arguments):
    counts, n_rounds = arguments
    for i in range(begin, end):
        state = np.uint64(counts[i] + 1)
        for _ in range(n_rounds):
            state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        counts[i] = np.int64(state >> np.uint64(1))


@kernel
def work_slowly(control, counts, n_rounds):
    """Run a chain of n_rounds multiplications (about 1 ns each) for each item."""
    fork(control, count_slowly, counts.shape[0], 1, (counts, n_rounds))


@jit
def count_row(begin, end, arguments):
    control, counts = arguments
    for row in range(begin, end):
        fork(control, count_item, counts.shape[1], 3, (counts[row], 1))


@kernel
def count_rows(control, counts):
    """Fork inside a fork: every element of the matrix grows by one."""
    fork(control, count_row, counts.shape[0], 1, (control, counts))


@kernel
def try_to_claim(control):
    return claim(control)


@kernel
def try_to_run(control):
    return run_claimed(control)


def main() -> int:
    """Fork with two threads; print hits and misses of the cache on disk; leave the team to the interpreter's exit."""
    values, out = np.arange(1000, dtype=np.int64), np.zeros(1000, np.int64)
    team = Team(2)
    scale(team.control, values, out, 3, 1, False, 7)
    is_right = bool(np.array_equal(out, values * 3 + 1))
    stats = scale.stats
    sys.stdout.write(f"{sum(stats.cache_hits.values())} {sum(stats.cache_misses.values())} {is_right}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
