"""What the scan of a decode window takes from its projections: w of q, k and v (convolution, head norms), and the next tail.

A warp makes the w of one vector of a token: kind 0 is k, 1 is q, 2 is v of a v head h.  All rows that it looks back to are asked
for before the first is used.  Rows from before the window come from the tail, and the last row's warp of a kind holds the tail
to come: the last of (tail, then the segment's rows of u).

    channel_of(kind, h)                                      the first channel of the vector
    fetch(tail, conv, row, begin, place, channel, taps, past)      taps, and values from before the window
    recent(u, row, begin, channel, past, fresh)              values of the window: rows before, and the row's own
    make(row, kind, h, channel, eps, thread, taps, past, fresh, values, x, at, w)
                                                             w to x[at:] of shared memory, and to w for a replay
    store_tail(tail, place, channel, past, fresh)

`channel` is the thread's first one, channel_of(kind, h) + thread.  past[depth m + tap] is value 32 m + thread of `depth - tap` rows before.  k and q lie in x by lanes of eight, `pitch` floats
apart.  Does not know: the scan.
"""

from types import SimpleNamespace

import numpy as np

from strata.cuda.machine.seam import add, div, fma, jit, mul, sqrt
from strata.cuda.machine.silus import silus
from strata.cuda.machine.warps import ONE, sum_row

ZERO = np.float32(0.0)


def window_inputs(size: int, n_k: int, n_v: int, n_taps: int, pitch: int, keep: bool) -> SimpleNamespace:
    """Build the helpers."""
    per_thread, depth, channels = size // 32, n_taps - 1, (2 * n_k + n_v) * size
    silu_all = silus(per_thread)

    @jit
    def channel_of(kind, h):
        unit = 2 * n_k + h
        if kind < 2:
            unit = h % n_k + (n_k if kind == 0 else 0)
        return np.int32(unit * size)

    @jit
    def fetch(tail, conv, row, begin, place, channel, taps, past):
        for m in range(per_thread):
            for tap in range(n_taps):
                taps[m * n_taps + tap] = conv[np.uint64((channel + 32 * m) * n_taps + tap)]
        for tap in range(depth):
            source = row - depth + tap
            if source < begin:
                at = (np.int64(place) * depth + source - begin + depth) * channels + channel
                for m in range(per_thread):
                    past[m * depth + tap] = tail[np.uint64(at + 32 * m)]

    @jit
    def recent(u, row, begin, channel, past, fresh):
        at = np.int64(row) * channels + channel
        for m in range(per_thread):
            fresh[m] = u[np.uint64(at + 32 * m)]
        for tap in range(depth):
            back = depth - tap
            if row - back >= begin:
                for m in range(per_thread):
                    past[m * depth + tap] = u[np.uint64(at - back * channels + 32 * m)]

    @jit
    def make(row, kind, h, channel, eps, thread, taps, past, fresh, values, x, at, w):
        for m in range(per_thread):
            total = mul(taps[m * n_taps], past[m * depth])
            for tap in range(1, depth):
                total = fma(taps[m * n_taps + tap], past[m * depth + tap], total)
            values[m] = fma(taps[m * n_taps + depth], fresh[m], total)
        silu_all(values)
        if kind < 2:
            total = ZERO
            for m in range(per_thread):
                total = fma(values[m], values[m], total)
            scale = div(ONE, sqrt(add(sum_row(total), eps)))
            for m in range(per_thread):
                values[m] = mul(values[m], scale)
                x[np.uint64(at + ((thread & 7) * pitch + 4 * m + (thread >> 3)))] = values[m]
        else:
            for m in range(per_thread):
                x[np.uint64(at + 32 * m + thread)] = values[m]
        if not keep and (kind == 2 or h < n_k):
            for m in range(per_thread):
                w[np.uint64(np.int64(row) * channels + channel + 32 * m)] = values[m]

    @jit
    def store_tail(tail, place, channel, past, fresh):
        at = np.int64(place) * depth * channels + channel
        for m in range(per_thread):
            for t in range(depth - 1):
                tail[np.uint64(at + t * channels + 32 * m)] = past[m * depth + t + 1]
            tail[np.uint64(at + (depth - 1) * channels + 32 * m)] = fresh[m]

    return SimpleNamespace(channel_of=channel_of, fetch=fetch, recent=recent, make=make, store_tail=store_tail)
