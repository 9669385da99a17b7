"""Row operations: reading and writing the residual's streams, experts' activation, routing, combining."""

import numpy as np

from strata.host import experts, streams
from tests.oracle import operations as oracle
from tests.unit.host.operation import RowOperation
from tests.unit.numerics.stranger import experts as plain_experts
from tests.unit.numerics.stranger import streams as plain

C, H, E, K = 4, 72, 24, 6
EPS = np.float32(1e-6)
WEIGHT = np.random.default_rng(1).standard_normal(C * H).astype(np.float32)


def normal(generator, *shape) -> np.ndarray:
    return generator.standard_normal(shape).astype(np.float32)


def normalise(control, residual):
    out = np.empty((residual.shape[0], C * H), np.float32)
    streams.normalise(control, residual, WEIGHT, EPS, out)
    return (out,)


def low_rank_gate(control, low):
    streams.low_rank_gate(low, np.float32(C))
    return (low,)


def mix(control, normed, gate):
    out = np.empty((normed.shape[0], H), np.float32)
    streams.mix(control, normed, gate, C, out)
    return (out,)


def exact_mix(normed, gate):
    shape = (-1, C, H)
    return (np.sum(normed.reshape(shape).astype(np.float64) * oracle.sigmoid(gate).reshape(shape), axis=1) / C,)


def write(control, residual, y, inject):
    streams.write(residual, y, inject)
    return (residual,)


def activate(control, gate, up):
    experts.activate(gate, up)
    return (gate,)


def route(control, logits):
    ids, weights = np.empty((logits.shape[0], K), np.int32), np.empty((logits.shape[0], K), np.float32)
    experts.route(logits, ids, weights)
    return ids, weights


def plain_route(logits):
    ids, weights = plain_experts.routed(logits, K)
    return ids.astype(np.int32), weights


def combine(control, outputs, weights, shared, shared_gate):
    rows = outputs.shape[0]
    out, entry_of = np.empty((rows, H), np.float32), np.arange(rows * K, dtype=np.int32).reshape(rows, K)
    experts.combine(outputs.reshape(rows * K, H), entry_of, weights, shared, shared_gate, out)
    return (out,)


def plain_combine(outputs, weights, shared, shared_gate, order=None):
    return (plain_experts.combined(outputs, weights, shared, shared_gate[:, 0], order),)


OPERATIONS = (
    RowOperation(
        "norm of the streams", lambda g, n: {"residual": normal(g, n, C, H)}, normalise,
        lambda residual: (plain.norm_streams(residual, WEIGHT, EPS),),
        lambda residual: ((oracle.rms(residual, 1e-6) * WEIGHT.reshape(C, H)).reshape(len(residual), -1),),
        wrong={"eight lanes": lambda residual: (plain.norm_streams(residual, WEIGHT, EPS, 8),)},
    ),
    RowOperation(
        "low rank gate", lambda g, n: {"low": 9 * normal(g, n, 33)}, low_rank_gate, lambda low: (plain.low_rank(low, C),),
        lambda low: (oracle.silu(low.astype(np.float64) / C),),
        wrong={"division after silu": lambda low: (plain.low_rank(low, 1) / np.float32(C),)},
    ),
    RowOperation(
        "mix of the streams", lambda g, n: {"normed": normal(g, n, C * H), "gate": normal(g, n, C * H)}, mix,
        lambda normed, gate: (plain.mixed(normed, gate, C),), exact_mix,
        wrong={"streams descending": lambda normed, gate: (plain.mixed(normed, gate, C, ascending=False),)},
    ),
    RowOperation(
        "write to the streams",
        lambda g, n: {"residual": normal(g, n, C, H), "y": normal(g, n, H), "inject": normal(g, n, C)}, write,
        lambda residual, y, inject: (plain.written(residual, y, inject),),
        lambda residual, y, inject: (oracle.stream_write(residual, y, inject),),
        wrong={"product, then sum": lambda residual, y, inject: (
            residual + y[:, None] * plain.written(np.zeros_like(residual), np.ones_like(y), inject),)},
    ),
    RowOperation(
        "activation of experts", lambda g, n: {"gate": 3 * normal(g, n, 64), "up": normal(g, n, 64)}, activate,
        lambda gate, up: (plain_experts.activated(gate, up),),
        lambda gate, up: (oracle.silu(gate) * up,),
        wrong={"up first": lambda gate, up: ((gate * up) * plain_experts.sigmoid(gate),)},
    ),
    RowOperation(
        "routing", lambda g, n: {"logits": np.round(normal(g, n, E) * 4) / np.float32(4)}, route, plain_route,
        lambda logits: oracle.router(logits, K),
        wrong={"higher index first": lambda logits: (E - 1 - plain_route(logits[:, ::-1])[0], plain_route(logits)[1])},
    ),
    RowOperation(
        "combination of experts",
        lambda g, n: {
            "outputs": normal(g, n, K, H), "weights": normal(g, n, K), "shared": normal(g, n, H), "shared_gate": normal(g, n, 1),
        }, combine, plain_combine,
        lambda outputs, weights, shared, shared_gate: (oracle.moe_combine(outputs, weights, shared, shared_gate[:, 0]),),
        wrong={
            "descending ranks": lambda **rows: plain_combine(**rows, order=range(K - 1, -1, -1)),
            "two halves swapped, as by arrival": lambda **rows: plain_combine(**rows, order=(3, 4, 5, 0, 1, 2)),
        },
    ),
)
