"""Cases of measure_operations.py that read weights: the products of a layer at the real geometry, and whole half layers.

A case is a name, several sets of launches (on weights of their own, so that none stays in a cache), and the bytes of a set: weights and
recurrent state, which memory must move.  Dense matrices are Q4_K, float ones BF16.  Does not know: times.
"""

from collections.abc import Iterator

import numpy as np

from strata.formats.table import by_name
from tests.gpu.geometry import REAL, CodedOutput, flat, normal, single_rows, tables_of
from tests.unit.formats.blocks import random_blocks

C = REAL
DENSE = "Q4_K"
SETS = 8
CHAINED_SETS = 6


class Weights:
    """Matrices for several layers, one after the other in large allocations; all repeat one random megabyte."""

    def __init__(self, card) -> None:
        self.card, form = card, by_name(DENSE)
        self.form, self.blocks = form, random_blocks(form, (1 << 20) // form.block_bytes, 3).reshape(-1)
        floats = normal(8, 1 << 19) * np.float32(0.02)
        self.brains = (floats.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)

    def _raw(self, source: np.ndarray, n_bytes: int):
        return self.card.upload("weights", np.resize(source, -(-n_bytes // 16) * 16))

    def dense(self, n_out: int, n_in: int):
        from strata.cuda.products import Packed

        n_bytes = n_out * (n_in // self.form.block_weights) * self.form.block_bytes
        return Packed(self._raw(self.blocks, n_bytes), self.form.type_id, n_out, n_in)

    def floats(self, n_out: int, n_in: int):
        from strata.cuda.placed import FloatMatrix

        return FloatMatrix(self._raw(self.brains, 2 * n_out * n_in), "BF16", n_out, n_in)


def n_bytes(*matrices) -> int:
    """Return the bytes of matrices."""
    return sum(m.raw.size for m in matrices)


class Rows:
    """Buffers of a window of n rows."""

    def __init__(self, card, n: int) -> None:
        self.card, self.n = card, n

    def floats(self, width: int):
        return flat(self.card, normal(2, self.n, width) * np.float32(0.1))

    def coded(self, width: int):
        from strata.cuda.products import code

        coded = CodedOutput(self.card, self.n, width).coded
        code(self.card, self.floats(width), coded, self.n).go()
        return coded


def products(card, n: int) -> Iterator[tuple[str, list, int]]:
    """Every launch of products that a layer makes outside its experts."""
    from strata.cuda.products import dense
    from strata.cuda.projections import Projection, launch_projections

    if n > 8:
        return
    w, rows = Weights(card), Rows(card, n)

    def together(name: str, dense_outs, float_outs, n_in: int):
        x, coded = rows.floats(n_in), rows.coded(n_in)
        outs = [rows.floats(n_out) for n_out in (*dense_outs, *float_outs)]
        sets = []
        for _ in range(SETS):
            matrices = [w.dense(n_out, n_in) for n_out in dense_outs] + [w.floats(n_out, n_in) for n_out in float_outs]
            asked = [Projection(m, out) for m, out in zip(matrices, outs, strict=True)]
            sets.append(tuple(launch_projections(card, asked, x, coded, n)))
        return name, sets, n_bytes(*matrices)

    yield together("down + inject", (), (C.low_rank, C.n_streams), C.residual_width)
    yield together("qkv + gate + alpha + beta", (C.ssm_channels, C.ssm_inner), (C.n_ssm_v_heads,) * 2, C.hidden)
    yield together("q + k + v + indexer q + k", (C.q_gate_width, C.kv_width, C.kv_width), (C.indexer_width, C.indexer_dim), C.hidden)
    for name, n_in in (("output of the delta net", C.ssm_inner), ("output of attention", C.attention_width)):
        x, out, matrices = rows.coded(n_in), rows.floats(C.hidden), [w.dense(C.hidden, n_in) for _ in range(SETS)]
        yield name, [(dense(card, m, x, n, out),) for m in matrices], n_bytes(matrices[0])


def half_layers(card, n: int) -> Iterator[tuple[str, list, int]]:
    """A stream read and the gated delta net behind it, as a window runs them."""
    from strata.cuda.products import dense
    from strata.cuda.projections import Projection, launch_projections
    from strata.cuda.read_mix import launch_read_mix
    from strata.cuda.streams import launch_write_normalise
    from strata.cuda.window_scan import launch_window_scan

    if n > 8:
        return
    w, rows, heads, size = Weights(card), Rows(card, n), C.n_ssm_v_heads, C.ssm_state
    tables, width, one = tables_of(card, single_rows(n, [3000] * n), spare=0), C.residual_width, n * heads * size * size
    residual, y, inject, normed, low = rows.floats(width), rows.floats(C.hidden), rows.floats(C.n_streams), rows.floats(width), rows.floats(C.low_rank)
    mixed, codes = rows.floats(C.hidden), rows.coded(C.hidden)
    u, z, alpha, beta = (rows.floats(k) for k in (C.ssm_channels, C.ssm_inner, heads, heads))
    gated, out_codes, counters = rows.floats(C.ssm_inner), rows.coded(C.ssm_inner), card.zeros("counters", 8 * C.n_ssm_qk_heads, np.int32)
    small = [flat(card, normal(5, k) * np.float32(0.1)) for k in (4 * C.ssm_channels, heads, heads, size)]
    tail, memory = card.zeros("tail", n * 3 * C.ssm_channels, np.float32), card.zeros("memory", CHAINED_SETS * one, np.float32)
    reads, whole = [], []
    for s in range(CHAINED_SETS):
        norm, down, to_inject, up = flat(card, normal(6, width)), w.floats(C.low_rank, width), w.floats(C.n_streams, width), w.floats(width, C.low_rank)
        qkv, gate, a, b = w.dense(C.ssm_channels, C.hidden), w.dense(C.ssm_inner, C.hidden), w.floats(heads, C.hidden), w.floats(heads, C.hidden)
        output = w.dense(C.hidden, C.ssm_inner)
        read = (
            launch_write_normalise(card, C, residual, n, y=y, inject=inject, norm=norm, normed=normed),
            *launch_projections(card, [Projection(down, low), Projection(to_inject, inject)], normed, None, n),
            launch_read_mix(card, C, up.type_name, low, up.raw, C.low_rank, normed, n, mixed, codes),
        )
        asked = [Projection(m, out) for m, out in ((qkv, u), (gate, z), (a, alpha), (b, beta))]
        state = memory[s * one : (s + 1) * one]
        reads.append(read)
        whole.append((
            *read, *launch_projections(card, asked, mixed, codes, n),
            launch_window_scan(
                card, C, tables, True, u, alpha, beta, tail, *small[:3], state, 0.1, z, small[3], counters, u, alpha, beta, gated, out_codes
            ),
            dense(card, output, out_codes, n, y),
        ))
    of_read = n_bytes(down, to_inject, up) + 4 * width
    yield "a stream read", reads, of_read
    yield "read + delta net", whole, of_read + n_bytes(qkv, gate, a, b, output) + 2 * 4 * one
