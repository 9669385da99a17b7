"""Hyper-connections: reading one row out of the residual streams and writing a block's output back.

MODEL.md's `read` and `write`; the two low-rank products are float products.  Norms use 32 lanes.  The streams are summed in
ascending order.  Shapes: residual R float32 [rows, C, H].  Does not know: what the blocks compute.

    normalise(R, weight [C*H], eps, out [rows, C*H])           one RMS per stream
    low_rank_gate(low [rows, rank], C)                         in place: silu(low / C)
    mix(normed, gate [rows, C*H], n_streams, out [rows, H])    gate holds up . low; the sigmoid is taken here
    write(R, y [rows, H], inject [rows, C])                    in place: R[c] += y * 2 sigmoid(inject[c] / C)
"""

import numpy as np

from strata.cpu_pool.fork import fork
from strata.host.norms import inverse_rms
from strata.numerics.cpu import div, fma, jit, kernel, mul
from strata.numerics.on_cpu import sigmoid, silu

TWO = np.float32(2.0)


@jit
def _normalise_rows(begin, end, arguments):
    residual, weight, eps, out = arguments
    n_streams, hidden = residual.shape[1], residual.shape[2]
    for row in range(begin, end):
        for c in range(n_streams):
            scale = inverse_rms(residual[row, c], eps)
            for i in range(hidden):
                out[row, c * hidden + i] = mul(mul(residual[row, c, i], scale), weight[c * hidden + i])


@kernel
def normalise(control, residual, weight, eps, out):
    fork(control, _normalise_rows, residual.shape[0], 4, (residual, weight, eps, out))


@kernel
def low_rank_gate(low, n_streams):
    for row in range(low.shape[0]):
        for i in range(low.shape[1]):
            low[row, i] = silu(div(low[row, i], n_streams))


@jit
def _mix_rows(begin, end, arguments):
    normed, gate, n_streams, out = arguments
    hidden = out.shape[1]
    count = np.float32(n_streams)
    for row in range(begin, end):
        total = out[row]
        for i in range(hidden):
            total[i] = mul(normed[row, i], sigmoid(gate[row, i]))
        for c in range(1, n_streams):
            for i in range(hidden):
                total[i] = fma(normed[row, c * hidden + i], sigmoid(gate[row, c * hidden + i]), total[i])
        for i in range(hidden):
            total[i] = div(total[i], count)


@kernel
def mix(control, normed, gate, n_streams, out):
    fork(control, _mix_rows, out.shape[0], 2, (normed, gate, n_streams, out))


@kernel
def write(residual, y, inject):
    n_streams, hidden = residual.shape[1], residual.shape[2]
    count = np.float32(n_streams)
    for row in range(residual.shape[0]):
        for c in range(n_streams):
            gate = mul(TWO, sigmoid(div(inject[row, c], count)))
            for i in range(hidden):
                residual[row, c, i] = fma(y[row, i], gate, residual[row, c, i])
