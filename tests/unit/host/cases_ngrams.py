"""Row operations of the n-gram layer: each row is one token of its own session."""

import numpy as np

from strata.host import ngrams
from tests.oracle import operations as oracle
from tests.unit.host.cases_gdn import one_row_segments
from tests.unit.host.cases_streams import normal
from tests.unit.host.operation import RowOperation
from tests.unit.numerics.stranger import gdn as plain_gdn
from tests.unit.numerics.stranger import ngrams as plain

C, H, TAPS, DILATION, END = 4, 64, 4, 3, 4093
DEPTH = (TAPS - 1) * DILATION
EPS = np.float32(1e-6)
MULTIPLIERS = np.array([(1 << 63) + 20109073645365, 23703573157769, (1 << 62) + 8052911324071], np.uint64)
"""Large enough that products pass 2^63 and 2^64: a signed remainder would be another one."""
SIZES = np.array([20011, 20021, 20023, 20029, 20047, 20051], np.uint64)
OFFSETS = np.concatenate(([0], np.cumsum(SIZES)[:-1])).astype(np.uint64)
N_BIGRAMS = 3
_generator = np.random.default_rng(4)
NORM_KEY, NORM_QUERY, NORM_CONV = normal(_generator, C * H), normal(_generator, C * H), normal(_generator, C * H)
CONV = normal(_generator, C * H, TAPS)


def table_rows(control, tokens, history):
    segment_of_row, first, _, slot = one_row_segments(len(tokens))
    out = np.empty((len(tokens), len(SIZES)), np.int64)
    ngrams.table_rows(tokens, segment_of_row, first, slot, history, END, MULTIPLIERS, SIZES, OFFSETS, N_BIGRAMS, out)
    return (out,)


def make_tokens(generator, n: int) -> dict:
    history = generator.integers(0, 4096, (n, 2)).astype(np.int32)
    history[::5] = -1
    history[1::5, 1] = -1
    history[2::5, 0] = END
    history[3::5, 1] = END
    return {"tokens": generator.integers(0, 4096, n).astype(np.int32), "history": history}


def earlier(history) -> list[int]:
    """Tokens before a row, oldest first, of a history that has the latest first."""
    return [int(token) for token in history[::-1] if token >= 0]


def each_token(rows_of, tokens, history):
    return (np.concatenate([rows_of([int(t)], earlier(h)) for t, h in zip(tokens, history, strict=True)]),)


def plain_rows(tokens, history):
    return plain.table_rows(tokens, history, END, MULTIPLIERS, SIZES, OFFSETS, N_BIGRAMS)


def exact_rows(tokens, history):
    return oracle.ple_hash_rows(tokens, history, MULTIPLIERS, SIZES, OFFSETS, N_BIGRAMS, END)


def signed_rows(tokens, history):
    """Products taken as signed: wrong above 2^63."""
    one, two = (list(reversed(history)) + [END, END])[:2]
    mixed = 0
    for token, multiplier in zip((tokens[0], one, two), MULTIPLIERS, strict=True):
        mixed ^= int(np.int64(np.uint64(token * int(multiplier) % (1 << 64))))
    return np.array([[mixed % int(size) + int(offset) for size, offset in zip(SIZES, OFFSETS, strict=True)]], np.int64)


def gate_values(control, residual, key, value):
    gated, rows = np.empty_like(key), np.empty_like(key)
    root = np.sqrt(np.float32(H))
    ngrams.gate_values(residual, key, value, NORM_KEY, NORM_QUERY, NORM_CONV, EPS, root, gated, rows)
    return gated, rows


def plain_gate(residual, key, value):
    gated = plain.gated(residual, key, value, NORM_KEY, NORM_QUERY, EPS)
    return gated.reshape(len(key), -1), plain.normed(gated, NORM_CONV.reshape(C, H), EPS).reshape(len(key), -1)


def exact_gate(residual, key, value):
    gated = oracle.ple_gate(residual, key, value, NORM_KEY, NORM_QUERY, 1e-6)
    return gated.reshape(len(key), -1), (oracle.rms(gated, 1e-6) * NORM_CONV.reshape(C, H)).reshape(len(key), -1)


def convolve_add(control, residual, gated, rows_in, tail):
    segment_of_row, first, _, slot = one_row_segments(len(residual))
    ngrams.convolve_add(residual, gated, rows_in, tail, CONV, DILATION, segment_of_row, first, slot)
    return (residual,)


def plain_convolve_add(residual, gated, rows_in, tail, **order):
    rows = [plain_gdn.convolved(rows_in[i : i + 1], tail[i], CONV, DILATION, **order) for i in range(len(tail))]
    return (plain.added(residual, gated.reshape(residual.shape), np.concatenate(rows)),)


def exact_convolve_add(residual, gated, rows_in, tail):
    rows = [oracle.ple_conv(rows_in[i : i + 1], tail[i], CONV, DILATION)[0] for i in range(len(tail))]
    convolved = oracle.silu(np.concatenate(rows)).reshape(residual.shape)
    return (residual.astype(np.float64) + gated.reshape(residual.shape) + convolved,)


OPERATIONS = (
    RowOperation(
        "n-gram table rows", make_tokens, table_rows, lambda **rows: each_token(plain_rows, **rows),
        lambda **rows: each_token(exact_rows, **rows), bound=0.0, wrong={"signed products": lambda **rows: each_token(signed_rows, **rows)},
    ),
    RowOperation(
        "n-gram gate", lambda g, n: {"residual": normal(g, n, C, H), "key": normal(g, n, C * H), "value": normal(g, n, H)},
        gate_values, plain_gate, exact_gate,
        wrong={"query and key exchanged": lambda residual, key, value: plain_gate(key.reshape(residual.shape), residual.reshape(key.shape), value)},
    ),
    RowOperation(
        "n-gram convolution",
        lambda g, n: {
            "residual": normal(g, n, C, H), "gated": normal(g, n, C * H), "rows_in": normal(g, n, C * H), "tail": normal(g, n, DEPTH, C * H),
        }, convolve_add, plain_convolve_add, exact_convolve_add,
        wrong={"product, then sum": lambda **rows: plain_convolve_add(**rows, fused=False)},
    ),
)
