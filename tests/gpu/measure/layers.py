"""Cases of operations.py that read weights: the products of a layer at the real geometry, and whole half layers.

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
        from strata.cuda.packed.products import Packed

        n_bytes = n_out * (n_in // self.form.block_weights) * self.form.block_bytes
        return Packed(self._raw(self.blocks, n_bytes), self.form.type_id, n_out, n_in)

    def floats(self, n_out: int, n_in: int):
        from strata.cuda.memory.placed import FloatMatrix

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
        from strata.cuda.packed.products import code

        coded = CodedOutput(self.card, self.n, width).coded
        code(self.card, self.floats(width), coded, self.n).go()
        return coded


def products(card, n: int) -> Iterator[tuple[str, list, int]]:
    """Every launch of products that a layer makes outside its experts."""
    from strata.cuda.packed.products import dense
    from strata.cuda.stage.projections import Projection, launch_projections

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


class DeltaNetLayers:
    """Several layers' stream reads with the gated delta net behind, on weights of their own, prepared as a window runs them.

    `reads` and `whole` have a tuple of launches per layer; `state` names the arrays that go from layer to layer and window to window.
    """

    def __init__(self, card, n: int, n_layers: int) -> None:
        width, heads, size = C.residual_width, C.n_ssm_v_heads, C.ssm_state
        self.card, self.n, self.weights, rows = card, n, Weights(card), Rows(card, n)
        self.one = n * heads * size * size
        self.tables = tables_of(card, single_rows(n, [3000] * n), spare=0)
        self.residual, self.y, self.inject = rows.floats(width), rows.floats(C.hidden), rows.floats(C.n_streams)
        self.normed, self.low, self.mixed, self.codes = rows.floats(width), rows.floats(C.low_rank), rows.floats(C.hidden), rows.coded(C.hidden)
        self.u, self.z, self.alpha, self.beta = (rows.floats(k) for k in (C.ssm_channels, C.ssm_inner, heads, heads))
        self.gated, self.out_codes = rows.floats(C.ssm_inner), rows.coded(C.ssm_inner)
        self.counters = card.zeros("counters", 8 * C.n_ssm_qk_heads, np.int32)
        vectors = [normal(5 + i, k) * np.float32(0.1) for i, k in enumerate((4 * C.ssm_channels, heads, heads, size))]
        vectors[2] = -np.abs(vectors[2])
        self.conv, self.bias, self.decay, self.weight = (flat(card, v) for v in vectors)
        self.tail = card.zeros("tail", n_layers * n * 3 * C.ssm_channels, np.float32)
        self.memory = card.zeros("memory", n_layers * self.one, np.float32)
        self.state = {name: getattr(self, name) for name in ("residual", "y", "inject", "tail", "memory")}
        self.reads, self.whole, self.n_bytes_read, self.n_bytes = [], [], 0, 0
        for layer in range(n_layers):
            self._add(layer)

    def _add(self, layer: int) -> None:
        read = self._read(layer)
        self.reads.append(read)
        self.whole.append((*read, *self._delta_net(layer)))

    def _read(self, layer: int) -> tuple:
        from strata.cuda.residual.read_mix import launch_read_mix
        from strata.cuda.residual.streams import launch_write_normalise
        from strata.cuda.stage.projections import Projection, launch_projections

        card, n, w, width = self.card, self.n, self.weights, C.residual_width
        norm, down, inject, up = flat(card, normal(6, width)), w.floats(C.low_rank, width), w.floats(C.n_streams, width), w.floats(width, C.low_rank)
        self.n_bytes_read = n_bytes(down, inject, up) + 4 * width
        asked = [Projection(down, self.low), Projection(inject, self.inject)]
        return (
            launch_write_normalise(card, C, self.residual, n, y=self.y, inject=self.inject, norm=norm, normed=self.normed),
            *launch_projections(card, asked, self.normed, None, n),
            launch_read_mix(card, C, up.type_name, self.low, up.raw, C.low_rank, self.normed, n, self.mixed, self.codes),
        )

    def _delta_net(self, layer: int) -> tuple:
        from strata.cuda.delta_net.window_scan import launch_window_scan
        from strata.cuda.packed.products import dense
        from strata.cuda.stage.projections import Projection, launch_projections

        card, n, w, heads = self.card, self.n, self.weights, C.n_ssm_v_heads
        matrices = (w.dense(C.ssm_channels, C.hidden), w.dense(C.ssm_inner, C.hidden), w.floats(heads, C.hidden), w.floats(heads, C.hidden))
        output, tail_size = w.dense(C.hidden, C.ssm_inner), n * 3 * C.ssm_channels
        self.n_bytes = self.n_bytes_read + n_bytes(*matrices, output) + 2 * 4 * self.one
        asked = [Projection(m, out) for m, out in zip(matrices, (self.u, self.z, self.alpha, self.beta), strict=True)]
        memory, tail = self.memory[layer * self.one : (layer + 1) * self.one], self.tail[layer * tail_size : (layer + 1) * tail_size]
        return (
            *launch_projections(card, asked, self.mixed, self.codes, n),
            launch_window_scan(
                card, C, self.tables, True, self.u, self.alpha, self.beta, tail, self.conv, self.bias, self.decay, memory, 0.1, self.z,
                self.weight, self.counters, self.u, self.alpha, self.beta, self.gated, self.out_codes,
            ),
            dense(card, output, self.out_codes, n, self.y),
        )


def half_layers(card, n: int) -> Iterator[tuple[str, list, int]]:
    """A stream read, and with the gated delta net behind it."""
    if n > 8:
        return
    layers = DeltaNetLayers(card, n, CHAINED_SETS)
    yield "a stream read", layers.reads, layers.n_bytes_read
    yield "delta net without its products", [(launches[-2],) for launches in layers.whole], 2 * 4 * layers.one
    yield "read + delta net", layers.whole, layers.n_bytes
