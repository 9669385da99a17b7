"""The logits of a block of the router for several rows: a team of 64 threads has one or two rows of all four outputs.

The products of float_wide_rows.py, so that every activation is read once a block and not once an output, in batches that leave no rest
where the row allows it; sums are posted as router.py does.  Does not know: how weight rows get to shared memory, the choice of experts.
"""

import numpy as np
from numba import cuda

from strata.cuda.floats.float_wide_rows import OUTPUTS, STEPS, chains, rows_per_part, tree
from strata.cuda.machine.posting import post
from strata.cuda.machine.seam import Target, copies, jit
from strata.numerics.orders import WIDE

ZERO = np.float32(0.0)


def row_logits(type_name: str, n_in: int, n_experts: int, n_rows: int, pitch: int, target: Target):
    """Build `compute(slots, x, thread, team, first, logits, posted, shared_gate)`: outputs first .. first + OUTPUTS - 1, weights `pitch` apart.

    The weight rows are this thread's last copies.
    """
    own_rows, wait_all = rows_per_part(n_rows, 1), copies(target, 0).wait
    steps = next((n for n in (STEPS + 1, STEPS) if n_in % (n * WIDE) == 0), STEPS)
    fetch, advance, batch = chains(type_name, own_rows, steps)
    total, per_sum, n_half = tree(own_rows)
    n_lanes, n_held = 2 * n_half, 4 * steps * own_rows

    @jit
    def compute(slots, x, thread, team, first, logits, posted, shared_gate):
        lanes, kept = cuda.local.array(n_lanes, np.float32), cuda.local.array(n_half, np.float32)
        held, ahead = cuda.local.array(n_held, np.float32), cuda.local.array(n_held, np.float32)
        places = cuda.local.array(own_rows, np.int64)
        warp, in_warp = thread >> 5, thread & 31
        for r in range(own_rows):
            places[r] = np.int64(min(np.int32(team * own_rows + r), np.int32(n_rows - 1))) * n_in
        for v in range(n_lanes):
            lanes[v] = ZERO
        if n_in >= batch:
            fetch(x, places, 4 * thread, held)
        wait_all()
        cuda.syncthreads()
        advance(slots, np.int32(pitch), x, places, np.int32(n_in), thread, held, ahead, lanes)
        cuda.syncthreads()
        value = total(slots, lanes, kept, np.int32(2 * team + warp), in_warp)
        which = np.int32(warp * (n_half // 4) + in_warp // per_sum)
        row, n = np.int32(team * own_rows + which // OUTPUTS), np.int32(first + which % OUTPUTS)
        if in_warp % per_sum == 0 and row < n_rows:
            if n < n_experts:
                post(posted, np.int64(row) * n_experts + n, value)
                logits[np.int64(row) * n_experts + n] = value
            if n == n_experts:
                shared_gate[row] = value

    return compute
