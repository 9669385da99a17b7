"""The n-gram layer (PLE): hashing, table rows, gate, dilated convolution.

MODEL.md section 4.  Hashes are unsigned 64-bit; every operand is cast to uint64.  Orders: key.query eight lanes, then
divided by sqrt(H); convolution taps ascending (product, then fused); R = (R + gated) + silu(conv).
Shapes: R [rows, C, H]; embedding [rows, heads * width]; nr rows [rows, C*H]; tail [slots, 9, C*H]; history int32 [slots, 2]
holds the last two tokens, latest first, -1 where there is none.  Does not know: projections.
"""

import numpy as np

from strata.host.dots import dot8
from strata.host.norms import inverse_rms
from strata.numerics.cpu import add, div, fma, kernel, mul
from strata.numerics.on_cpu import root_gate, silu

ZERO = np.float32(0.0)


@kernel
def table_rows(tokens, segment_of_row, first, slot, history, end_token, multipliers, sizes, offsets, n_bigrams, out):
    """out int64 [rows, heads]: the row of the n-gram table for each head."""
    for row in range(tokens.shape[0]):
        segment = segment_of_row[row]
        in_window = row - first[segment]
        one = tokens[row - 1] if in_window >= 1 else history[slot[segment], 0]
        two = tokens[row - 2] if in_window >= 2 else history[slot[segment], 1 - in_window]
        cut = one < 0 or one == end_token
        first_back = end_token if cut else one
        second_back = end_token if cut or two < 0 or two == end_token else two
        bigram = (np.uint64(tokens[row]) * multipliers[0]) ^ (np.uint64(first_back) * multipliers[1])
        trigram = bigram ^ (np.uint64(second_back) * multipliers[2])
        for h in range(out.shape[1]):
            value = bigram if h < n_bigrams else trigram
            out[row, h] = np.int64(value % sizes[h] + offsets[h])


@kernel
def keep_history(tokens, first, slot, kept, history):
    """Move the token history behind the kept rows of each segment."""
    for segment in range(first.shape[0]):
        n, s = kept[segment], slot[segment]
        if n >= 2:
            history[s, 1] = tokens[first[segment] + n - 2]
        elif n == 1:
            history[s, 1] = history[s, 0]
        if n >= 1:
            history[s, 0] = tokens[first[segment] + n - 1]


@kernel
def gate_values(residual, key, value, norm_key, norm_query, norm_conv, eps, root_hidden, gated, rows_out):
    """gated [rows, C*H] = value * gate per stream; rows_out [rows, C*H] = rms(gated) * norm_conv, the convolution's input."""
    n_streams, hidden = residual.shape[1], residual.shape[2]
    a, b = np.empty(hidden, np.float32), np.empty(hidden, np.float32)
    for row in range(residual.shape[0]):
        for c in range(n_streams):
            at = c * hidden
            scale_key = inverse_rms(key[row, at : at + hidden], eps)
            scale_query = inverse_rms(residual[row, c], eps)
            for i in range(hidden):
                a[i] = mul(mul(key[row, at + i], scale_key), norm_key[at + i])
                b[i] = mul(mul(residual[row, c, i], scale_query), norm_query[at + i])
            strength = root_gate(div(dot8(a, b, hidden), root_hidden))
            for i in range(hidden):
                gated[row, at + i] = mul(value[row, i], strength)
            scale = inverse_rms(gated[row, at : at + hidden], eps)
            for i in range(hidden):
                rows_out[row, at + i] = mul(mul(gated[row, at + i], scale), norm_conv[at + i])


@kernel
def convolve_add(residual, gated, rows_in, tail, taps, dilation, segment_of_row, first, slot):
    """In place: R += gated, then R += silu(dilated convolution of rows_in), taps float32 [C*H, n_taps], oldest first."""
    n_streams, hidden = residual.shape[1], residual.shape[2]
    n_taps, depth = taps.shape[1], tail.shape[1]
    for row in range(residual.shape[0]):
        segment = segment_of_row[row]
        for c in range(n_streams):
            for i in range(hidden):
                flat, total = c * hidden + i, ZERO
                for tap in range(n_taps):
                    source = row - (n_taps - 1 - tap) * dilation
                    if source >= first[segment]:
                        value = rows_in[source, flat]
                    else:
                        value = tail[slot[segment], source - first[segment] + depth, flat]
                    total = mul(taps[flat, tap], value) if tap == 0 else fma(taps[flat, tap], value, total)
                residual[row, c, i] = add(add(residual[row, c, i], gated[row, flat]), silu(total))
