"""What the warps of window_scan.py do with a window's tokens: which they make, their gates, their way through the memory, their outputs.

`shape` is a WindowShape throughout: `staged` holds k, q and v of each token, `shape.token` floats apart, then decays and strengths.
Does not know: how w is made, where the memory lies.
"""

import numpy as np

from strata.cuda.delta_net.gdn import decay_of, head_gate
from strata.cuda.delta_net.scan_parts import COLUMNS, ZERO, output_of_lane
from strata.cuda.machine.on_cuda import sigmoid
from strata.cuda.machine.seam import Target, fma, jit, load_four_floats, load_two_floats, mul, sub
from strata.cuda.packed.group_codes import group_coder

DECAYS_WARP = 3
"""Makes the tokens' decays; the last warp makes their strengths."""


def warp_tasks(n_warps: int):
    """Build `first_task(warp)` and `next_task(t, kind)`: the token, and which of its q, k and v, that a warp makes first and next."""

    @jit
    def first_task(warp):
        t = np.int32(2 if warp >= 6 else (1 if warp >= 3 else 0))
        return t, np.int32(warp - 3 * t)

    @jit
    def next_task(t, kind):
        t, kind = np.int32(t + n_warps // 3), np.int32(kind + n_warps % 3)
        return (np.int32(t + 1), np.int32(kind - 3)) if kind >= 3 else (t, kind)

    return first_task, next_task


def token_gates(shape):
    """Build `gates(alpha, logits, bias, rate, row, t, h, n_rows, warp, staged, g, beta)`: decays by the lanes of one warp, strengths by another's."""
    n_v, keep, gates_at, n_warps = shape.n_v_heads, shape.keep, shape.gates_at, shape.n_threads // 32

    @jit
    def gates(alpha, logits, bias, rate, row, t, h, n_rows, warp, staged, g, beta):
        at = np.uint64(np.int64(row) * n_v + h)
        if warp == DECAYS_WARP and t < n_rows:
            fades = decay_of(alpha[at], bias, rate)
            staged[np.uint64(gates_at + 2 * t)] = fades
            if not keep:
                g[at] = fades
        if warp == n_warps - 1 and t < n_rows:
            strength = sigmoid(logits[at])
            staged[np.uint64(gates_at + 2 * t + 1)] = strength
            if not keep:
                beta[at] = strength

    return gates


def token_reader(shape, held):
    """Build `read(...)`: one token through the thread's columns of a memory of window_memory.py; its output takes the place of v."""
    pitch, vector, token, gates_at = shape.pitch, shape.vector, shape.token, shape.gates_at
    multiply, advance = held.multiply, held.advance

    @jit
    def read(staged, t, lane, thread, column, state, products, read_scale, memory, home, leaves):
        at, v_at = t * token + lane * pitch, t * token + 2 * vector + column
        v0, v1, v2, v3 = load_four_floats(staged, 4 * v_at)
        fades, strength = load_two_floats(staged, 4 * (gates_at + 2 * t))
        multiply(staged, at, state, thread, products)
        minus = sub(ZERO, fades)
        d0, d1 = mul(strength, fma(minus, products[0], v0)), mul(strength, fma(minus, products[1], v1))
        d2, d3 = mul(strength, fma(minus, products[2], v2)), mul(strength, fma(minus, products[3], v3))
        advance(staged, at, at + vector, state, thread, fades, d0, d1, d2, d3, memory, home, leaves, products)
        mine = output_of_lane(products, lane, read_scale)
        if lane < COLUMNS:
            staged[np.uint64(v_at + lane)] = mine

    return read


def token_outputs(shape, target: Target):
    """Build `finish(...)`: tokens `token_gated` .. n_rows - 1 of those that the warp gates: norm, gate, codes.

    A thread has value `place` of the head; z_value and opening are the first one's gate before and behind its sigmoid; z of the next
    one is fetched while one is computed.
    """
    size, n_v, token, vector, n_warps = shape.size, shape.n_v_heads, shape.token, shape.vector, shape.n_threads // 32
    tokens_gated, gate, code_group = n_warps // (size // 32), head_gate(size), group_coder(target)

    @jit
    def finish(staged, token_gated, n_rows, row0, h, place, z_value, opening, z, factor, eps, in_warp, which, gated, codes, turned, scales, sums):
        while token_gated < n_rows:
            own = (np.int64(row0 + token_gated) * n_v + h) * size + place
            if token_gated + tokens_gated < n_rows:
                z_value = z[np.uint64(own + tokens_gated * n_v * size)]
            result = gate(staged, token_gated * token + 2 * vector, opening, factor, eps, in_warp, which)
            gated[np.uint64(own)] = result
            code_group(result, in_warp, own >> 5, codes, turned, scales, sums)
            token_gated = np.int32(token_gated + tokens_gated)
            if token_gated < n_rows:
                opening = sigmoid(z_value)

    return finish
