"""Gated delta net: convolution, norms, gates, the recurrent scan, and its commit.

MODEL.md section 3.1.  A window's rows come in segments (rows first .. first+count-1 belong to one slot, in order).  The scan
advances token by token in the same order whatever the window's width; a verify window scans a copy of the memory and
`commit` later replays the kept rows through the very same helper, so that the committed bits are those of the scan.

Orders: convolution taps ascending (product, then fused); k.M and q.M eight lanes over the memory's rows; update
    delta_j = beta * fma(-g, (k.M)_j, v_j);   M_ij = fma(k_i, delta_j, g * M_ij), entries below 2^-100 stored as +0
Shapes: u [rows, channels]; q, k inside w [rows, channels]; memory [slots, v_heads, S, S]; tail [slots, taps-1, channels].
Does not know: projections, layers.
"""

import numpy as np

from strata.cpu_pool.fork import fork
from strata.host.norms import inverse_l2, inverse_rms
from strata.numerics.codes import SMALLEST_BITS
from strata.numerics.cpu import add, fma, jit, kernel, mul, sub
from strata.numerics.hashing import FLOAT, hash_elements
from strata.numerics.on_cpu import exp, magnitude, sigmoid, silu, softplus, tree8

ZERO = np.float32(0.0)


@jit
def _convolve_rows(begin, end, arguments):
    u, tail, taps, segment_of_row, first, slot, out = arguments
    n_taps = taps.shape[1]
    for row in range(begin, end):
        segment = segment_of_row[row]
        total = out[row]
        for tap in range(n_taps):
            source = row - (n_taps - 1) + tap
            if source >= first[segment]:
                values = u[source]
            else:
                values = tail[slot[segment], source - first[segment] + n_taps - 1]
            if tap == 0:
                for channel in range(u.shape[1]):
                    total[channel] = mul(taps[channel, tap], values[channel])
            else:
                for channel in range(u.shape[1]):
                    total[channel] = fma(taps[channel, tap], values[channel], total[channel])
        for channel in range(u.shape[1]):
            total[channel] = silu(total[channel])


@kernel
def convolve(control, u, tail, taps, segment_of_row, first, slot, out):
    """out = silu(causal depthwise convolution of u), taps float32 [channels, n_taps], oldest first."""
    fork(control, _convolve_rows, u.shape[0], 4, (u, tail, taps, segment_of_row, first, slot, out))


@kernel
def gates(alpha, beta, bias, decay, out_g, out_beta):
    """out_g = exp(softplus(alpha + bias) * decay), out_beta = sigmoid(beta); all [rows, v_heads], bias and decay [v_heads]."""
    for row in range(alpha.shape[0]):
        for h in range(alpha.shape[1]):
            out_g[row, h] = exp(mul(softplus(add(alpha[row, h], bias[h])), decay[h]))
            out_beta[row, h] = sigmoid(beta[row, h])


@kernel
def normalise_heads(w, n_heads, size, eps):
    """In place: each of the first n_heads vectors of `size` values of every row is divided by its length."""
    for row in range(w.shape[0]):
        for h in range(n_heads):
            scale = inverse_l2(w[row, h * size : (h + 1) * size], eps)
            for i in range(h * size, (h + 1) * size):
                w[row, i] = mul(w[row, i], scale)


@jit
def _times_memory(x, memory, lanes, out):
    """out_j = sum_i x_i M_ij in the eight-lane order."""
    size = memory.shape[0]
    for lane in range(8):
        for j in range(size):
            lanes[lane, j] = ZERO
        for i in range(lane, size, 8):
            x_i = x[i]
            for j in range(size):
                lanes[lane, j] = fma(x_i, memory[i, j], lanes[lane, j])
    for j in range(size):
        out[j] = tree8(lanes[0, j], lanes[1, j], lanes[2, j], lanes[3, j], lanes[4, j], lanes[5, j], lanes[6, j], lanes[7, j])


@jit
def _advance(memory, k, v, g, beta, lanes, delta):
    """One token's update of one head's memory [S, S]."""
    size = memory.shape[0]
    _times_memory(k, memory, lanes, delta)
    minus_g = sub(ZERO, g)
    for j in range(size):
        delta[j] = mul(beta, fma(minus_g, delta[j], v[j]))
    for i in range(size):
        k_i = k[i]
        for j in range(size):
            value = fma(k_i, delta[j], mul(g, memory[i, j]))
            memory[i, j] = value if magnitude(value) >= SMALLEST_BITS else ZERO


@jit
def _hash_memory(memory, h, out):
    """out = head h's part of the hash of a slot's memory [v_heads, S, S]."""
    a, b = hash_elements(memory.reshape(memory.size).view(np.uint32), FLOAT, h * memory.size)
    out[0], out[1] = a, b


@jit
def _scan_heads(begin, end, arguments):
    w, g, beta, memory, first, count, slot, keep, n_k_heads, read_scale, out, hashes = arguments
    n_v_heads, size = memory.shape[1], memory.shape[2]
    lanes, delta, scratch = np.empty((8, size), np.float32), np.empty(size, np.float32), np.empty((size, size), np.float32)
    v_at = 2 * n_k_heads * size
    for item in range(begin, end):
        segment, h = item // n_v_heads, item % n_v_heads
        m = memory[slot[segment], h]
        if not keep:
            scratch[:, :] = m
            m = scratch
        q_at, k_at = (h % n_k_heads) * size, (n_k_heads + h % n_k_heads) * size
        for row in range(first[segment], first[segment] + count[segment]):
            v = w[row, v_at + h * size : v_at + (h + 1) * size]
            _advance(m, w[row, k_at : k_at + size], v, g[row, h], beta[row, h], lanes, delta)
            if hashes.shape[0] > 0:
                _hash_memory(m, h, hashes[row, h])
            result = out[row, h * size : (h + 1) * size]
            _times_memory(w[row, q_at : q_at + size], m, lanes, result)
            for j in range(size):
                result[j] = mul(result[j], read_scale)


@kernel
def scan(control, w, g, beta, memory, first, count, slot, keep, n_k_heads, read_scale, out, hashes):
    """out [rows, v_heads * S]: q meets the updated memory, times read_scale = 1/sqrt(S); `keep` writes the memory back.

    hashes uint64 [rows or 0, v_heads, 2]: summed over heads, the hash of the slot's memory after each row.
    """
    fork(control, _scan_heads, first.shape[0] * memory.shape[1], 1, (w, g, beta, memory, first, count, slot, keep, n_k_heads, read_scale, out, hashes))


@kernel
def commit(w, g, beta, u, memory, tail, first, slot, kept, n_k_heads):
    """Replay the first kept[s] rows of each segment into the memory, and move the convolution's tail behind them."""
    n_v_heads, size = memory.shape[1], memory.shape[2]
    lanes, delta = np.empty((8, size), np.float32), np.empty(size, np.float32)
    v_at = 2 * n_k_heads * size
    for segment in range(first.shape[0]):
        for row in range(first[segment], first[segment] + kept[segment]):
            for h in range(n_v_heads):
                k_at = (n_k_heads + h % n_k_heads) * size
                v = w[row, v_at + h * size : v_at + (h + 1) * size]
                _advance(memory[slot[segment], h], w[row, k_at : k_at + size], v, g[row, h], beta[row, h], lanes, delta)
    move_tail(u, tail, first, slot, kept)


@jit
def move_tail(u, tail, first, slot, kept):
    """tail = the last rows of (tail, then the kept rows of u), per segment; also used by the n-gram layer."""
    depth = tail.shape[1]
    for segment in range(first.shape[0]):
        n = kept[segment]
        for t in range(depth):
            source = t + n
            for i in range(tail.shape[2]):
                tail[slot[segment], t, i] = tail[slot[segment], source, i] if source < depth else u[first[segment] + source - depth, i]


@kernel
def keep_tail(u, tail, first, slot, kept):
    """`move_tail` for callers in Python."""
    move_tail(u, tail, first, slot, kept)


@kernel
def gate_norm(o, z, weight, eps, out):
    """out = rms(o_h) * weight * sigmoid(z_h) per head of S values; o, z, out [rows, v_heads * S], weight [S]."""
    size = weight.shape[0]
    for row in range(o.shape[0]):
        for at in range(0, o.shape[1], size):
            scale = inverse_rms(o[row, at : at + size], eps)
            for i in range(size):
                out[row, at + i] = mul(mul(mul(o[row, at + i], scale), weight[i]), sigmoid(z[row, at + i]))
