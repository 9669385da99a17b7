"""Routing, the experts' activation, and the combination of their outputs.

MODEL.md section 3.3.  The router ranks by logit (rank key, then the lower index) and normalises over the chosen ones:
w_j = exp(l_j - l_0) / sum, the sum a chain in rank order.  Outputs combine in rank order whoever computed them:
y = w_0 f_0, then fused multiply-adds, the shared expert last.

Shapes: logits [rows, E]; ids int32, weights float32 [rows, K]; an *entry* is a (row, rank) pair, entries are grouped by expert
in first-appearance order.  Does not know: formats, tiers.
"""

import numpy as np

from strata.numerics.cpu import add, div, fma, kernel, mul, sub
from strata.numerics.on_cpu import exp, key, sigmoid, silu

ZERO = np.float32(0.0)


@kernel
def route(logits, ids, weights):
    """Choose the K best experts of each row, rank by rank, and their weights."""
    n_experts, n_used = logits.shape[1], ids.shape[1]
    for row in range(logits.shape[0]):
        for rank in range(n_used):
            best, best_key = -1, np.int32(0)
            for e in range(n_experts):
                taken = False
                for earlier in range(rank):
                    taken |= ids[row, earlier] == e
                if not taken and (best < 0 or key(logits[row, e]) > best_key):
                    best, best_key = e, key(logits[row, e])
            ids[row, rank] = best
        total = ZERO
        for rank in range(n_used):
            weights[row, rank] = exp(sub(logits[row, ids[row, rank]], logits[row, ids[row, 0]]))
            total = add(total, weights[row, rank])
        for rank in range(n_used):
            weights[row, rank] = div(weights[row, rank], total)


@kernel
def group_entries(ids, experts, starts, entry_rows, entry_of, place):
    """Group entries by expert in first-appearance order; return the number of distinct experts.

    experts int32 [<= rows*K]; starts int32 [n+1]; entry_rows int32 [rows*K]: the row of each grouped entry; entry_of int32
    [rows, K]: where (row, rank) went; place int32 [E]: scratch.
    """
    n_distinct = 0
    place[:] = -1
    for row in range(ids.shape[0]):
        for rank in range(ids.shape[1]):
            e = ids[row, rank]
            if place[e] < 0:
                place[e] = n_distinct
                experts[n_distinct] = e
                starts[n_distinct + 1] = 0
                n_distinct += 1
            starts[place[e] + 1] += 1
    starts[0] = 0
    for i in range(n_distinct):
        starts[i + 1] += starts[i]
        place[experts[i]] = starts[i]
    for row in range(ids.shape[0]):
        for rank in range(ids.shape[1]):
            at = place[ids[row, rank]]
            place[ids[row, rank]] += 1
            entry_rows[at] = row
            entry_of[row, rank] = at
    return n_distinct


@kernel
def activate(gate, up):
    """In place: gate = silu(gate) * up."""
    for row in range(gate.shape[0]):
        for i in range(gate.shape[1]):
            gate[row, i] = mul(silu(gate[row, i]), up[row, i])


@kernel
def combine(outputs, entry_of, weights, shared, shared_gate, out):
    """out [rows, H] from outputs [entries, H], shared [rows, H] and its gate's logit [rows, 1]."""
    for row in range(out.shape[0]):
        gate = sigmoid(shared_gate[row, 0])
        for i in range(out.shape[1]):
            total = mul(weights[row, 0], outputs[entry_of[row, 0], i])
            for rank in range(1, weights.shape[1]):
                total = fma(weights[row, rank], outputs[entry_of[row, rank], i], total)
            out[row, i] = fma(gate, shared[row, i], total)
