"""What the scan of a decode window takes from its projections: w of q, k and v (convolution, head norms), and the next tail.

A warp makes the w of one vector of a token: kind 0 is k, 1 is q, 2 is v of a v head h.  All rows that it looks back to are asked
for before the first is used.  Rows from before the window come from the tail, and the last row's warp of a kind holds the tail
to come: the last of (tail, then the segment's rows of u).

    fetch(tail, conv, row, begin, place, kind, h, thread, taps, past)      taps, and values from before the window
    recent(u, row, begin, kind, h, thread, past, fresh)                    values of the window: rows before, and the row's own
    make(row, kind, h, eps, thread, taps, past, fresh, values, x, at, w)   w to x[at:] of shared memory; to w for a replay
    store_tail(tail, place, kind, h, thread, past, fresh)

past[depth m + tap] is value 32 m + thread of `depth - tap` rows before.  k and q lie in x by lanes of eight, `pitch` floats
apart.  Does not know: the scan.
"""

from types import SimpleNamespace

import numpy as np

from strata.cuda.on_cuda import silu
from strata.cuda.seam import add, div, fma, jit, mul, sqrt
from strata.cuda.warps import ONE, sum_row

ZERO = np.float32(0.0)


def window_inputs(size: int, n_k: int, n_v: int, n_taps: int, pitch: int, keep: bool) -> SimpleNamespace:
    """Build the helpers."""
    per_thread, depth, channels = size // 32, n_taps - 1, (2 * n_k + n_v) * size

    @jit
    def channel_of(kind, h, i):
        unit = 2 * n_k + h
        if kind < 2:
            unit = h % n_k + (n_k if kind == 0 else 0)
        return unit * size + i

    @jit
    def fetch(tail, conv, row, begin, place, kind, h, thread, taps, past):
        for m in range(per_thread):
            channel = channel_of(kind, h, 32 * m + thread)
            for tap in range(n_taps):
                taps[m * n_taps + tap] = conv[channel * n_taps + tap]
            for tap in range(depth):
                source = row - depth + tap
                if source < begin:
                    past[m * depth + tap] = tail[(np.int64(place) * depth + source - begin + depth) * channels + channel]

    @jit
    def recent(u, row, begin, kind, h, thread, past, fresh):
        at = np.int64(row) * channels + channel_of(kind, h, thread)
        for m in range(per_thread):
            fresh[m] = u[at + 32 * m]
        for tap in range(depth):
            back = depth - tap
            if row - back >= begin:
                for m in range(per_thread):
                    past[m * depth + tap] = u[at - back * channels + 32 * m]

    @jit
    def make(row, kind, h, eps, thread, taps, past, fresh, values, x, at, w):
        sum_of_squares = ZERO
        for m in range(per_thread):
            total = mul(taps[m * n_taps], past[m * depth])
            for tap in range(1, depth):
                total = fma(taps[m * n_taps + tap], past[m * depth + tap], total)
            values[m] = silu(fma(taps[m * n_taps + depth], fresh[m], total))
            sum_of_squares = fma(values[m], values[m], sum_of_squares)
        scale = div(ONE, sqrt(add(sum_row(sum_of_squares), eps)))
        for m in range(per_thread):
            i = 32 * m + thread
            value = mul(values[m], scale) if kind < 2 else values[m]
            x[at + ((i & 7) * pitch + (i >> 3) if kind < 2 else i)] = value
            if not keep and (kind == 2 or h < n_k):
                w[np.int64(row) * channels + channel_of(kind, h, i)] = value

    @jit
    def store_tail(tail, place, kind, h, thread, past, fresh):
        at = np.int64(place) * depth * channels + channel_of(kind, h, thread)
        for m in range(per_thread):
            for t in range(depth - 1):
                tail[at + t * channels + 32 * m] = past[m * depth + t + 1]
            tail[at + (depth - 1) * channels + 32 * m] = fresh[m]

    return SimpleNamespace(fetch=fetch, recent=recent, make=make, store_tail=store_tail)
