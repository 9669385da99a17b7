"""Row operations of the gated delta net: each row is one token of its own session."""

import numpy as np

from strata.host import gdn
from tests.oracle import operations as oracle
from tests.unit.host.cases_streams import normal
from tests.unit.host.operation import RowOperation
from tests.unit.numerics.stranger import gdn as plain

S, QK_HEADS, V_HEADS, TAPS = 16, 2, 6, 4
CHANNELS = (2 * QK_HEADS + V_HEADS) * S
EPS = np.float32(1e-6)
NO_HASHES = np.empty((0, V_HEADS, 2), np.uint64)
READ_SCALE = np.float32(1) / np.sqrt(np.float32(S))
_generator = np.random.default_rng(2)
CONV = normal(_generator, CHANNELS, TAPS)
BIAS, DECAY, WEIGHT = normal(_generator, V_HEADS), -np.abs(normal(_generator, V_HEADS)), normal(_generator, S)


def one_row_segments(n: int) -> tuple[np.ndarray, ...]:
    """segment_of_row, first, count, slot of n rows that are sessions of their own."""
    rows = np.arange(n, dtype=np.int32)
    return rows, rows, np.ones(n, np.int32), rows


def convolve(control, u, tail):
    segment_of_row, first, _, slot = one_row_segments(len(u))
    out = np.empty_like(u)
    gdn.convolve(control, u, tail, CONV, segment_of_row, first, slot, out)
    return (out,)


def plain_convolve(u, tail, **order):
    rows = [plain.silu(plain.convolved(u[i : i + 1], tail[i], CONV, **order)) for i in range(len(u))]
    return (np.concatenate(rows),)


def exact_convolve(u, tail):
    return (np.concatenate([oracle.gdn_conv(u[i : i + 1], tail[i], CONV)[0] for i in range(len(u))]),)


def gates(control, alpha, beta):
    g, strength = np.empty_like(alpha), np.empty_like(alpha)
    gdn.gates(alpha, beta, BIAS, DECAY, g, strength)
    return g, strength


def normalise_heads(control, w):
    gdn.normalise_heads(w, 2 * QK_HEADS, S, EPS)
    return (w,)


def exact_heads(w):
    heads = w.reshape(len(w), -1, S)
    unit = oracle.gdn_qk_norm(heads[:, : 2 * QK_HEADS], 1e-6)
    return (np.concatenate((unit, heads[:, 2 * QK_HEADS :]), axis=1).reshape(len(w), -1),)


def scan(control, w, g, beta, memory, keep=True):
    _, first, count, slot = one_row_segments(len(w))
    o = np.empty((len(w), V_HEADS * S), np.float32)
    gdn.scan(control, w, g, beta, memory, first, count, slot, keep, QK_HEADS, READ_SCALE, o, NO_HASHES)
    return o, memory


def plain_scan(w, g, beta, memory, **order):
    pairs = [plain.scanned(w[i : i + 1], g[i : i + 1], beta[i : i + 1], memory[i], QK_HEADS, **order) for i in range(len(w))]
    return np.concatenate([o for o, _ in pairs]), np.stack([m for _, m in pairs])


def exact_scan(w, g, beta, memory):
    q, k, v = oracle.gdn_split(w, QK_HEADS, V_HEADS, S)
    pairs = [oracle.gdn_scan(*(x[i : i + 1] for x in (q, k, v, g, beta)), memory[i]) for i in range(len(w))]
    return np.concatenate([o.reshape(1, -1) for o, _ in pairs]), np.stack([m for _, m in pairs])


def make_scan(generator, n: int) -> dict:
    unit = normalise_heads(None, normal(generator, n, CHANNELS))[0]
    return {
        "w": unit, "g": generator.uniform(0.5, 1, (n, V_HEADS)).astype(np.float32),
        "beta": generator.uniform(0, 1, (n, V_HEADS)).astype(np.float32), "memory": normal(generator, n, V_HEADS, S, S),
    }


def gate_norm(control, o, z):
    out = np.empty_like(o)
    gdn.gate_norm(o, z, WEIGHT, EPS, out)
    return (out,)


OPERATIONS = (
    RowOperation(
        "delta net's convolution", lambda g, n: {"u": normal(g, n, CHANNELS), "tail": normal(g, n, TAPS - 1, CHANNELS)},
        convolve, plain_convolve, exact_convolve, wrong={"product, then sum": lambda u, tail: plain_convolve(u, tail, fused=False)},
    ),
    RowOperation(
        "delta net's gates", lambda g, n: {"alpha": 4 * normal(g, n, V_HEADS), "beta": 4 * normal(g, n, V_HEADS)}, gates,
        lambda alpha, beta: plain.gates(alpha, beta, BIAS, DECAY), lambda alpha, beta: oracle.gdn_gates(alpha, beta, BIAS, DECAY),
        wrong={"bias after softplus": lambda alpha, beta: (
            plain.exp((plain.softplus(alpha) + BIAS) * DECAY), plain.sigmoid(beta))},
    ),
    RowOperation(
        "unit heads", lambda g, n: {"w": normal(g, n, CHANNELS)}, normalise_heads,
        lambda w: (plain.unit_heads(w, 2 * QK_HEADS, S, EPS),), exact_heads,
        wrong={"v heads too": lambda w: (plain.unit_heads(w, 2 * QK_HEADS + V_HEADS, S, EPS),)},
    ),
    RowOperation(
        "delta net's scan", make_scan, scan, plain_scan, exact_scan,
        wrong={"product, then sum": lambda **rows: plain_scan(**rows, fused=False)},
    ),
    RowOperation(
        "delta net's gated norm", lambda g, n: {"o": normal(g, n, V_HEADS * S), "z": normal(g, n, V_HEADS * S)}, gate_norm,
        lambda o, z: (plain.gate_normed(o, z, WEIGHT, EPS),),
        lambda o, z: (oracle.gdn_gate_norm(o.reshape(len(o), V_HEADS, S), z, WEIGHT, 1e-6),),
        wrong={"one norm over all heads": lambda o, z: (plain.gate_normed(o, z, np.tile(WEIGHT, V_HEADS), EPS),)},
    ),
)
