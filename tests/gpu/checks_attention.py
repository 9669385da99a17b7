"""Attention's operations on a card against the host: heads and cells, pooling, scores, selection, splits and merge."""

import numpy as np
from numba import njit

from strata.host import attention as host
from strata.host import indexer as host_indexer
from strata.host.attention import _merge as merge
from strata.host.cells import cell_format
from strata.model.config import ModelConfig
from strata.numerics.cpu import div
from strata.numerics.rotary import rotary_table
from strata.rows import Window
from tests.gpu.geometry import CodedOutput, flat, normal, read, run, tables_of
from tests.gpu.support import GuardedOutput, assert_same_bits, random_rows


class Cells:
    """A layer's cells on the host, everything poisoned that nobody wrote."""

    def __init__(self, config: ModelConfig, kv: str, raw_format: str, n_slots: int, n_cells: int) -> None:
        c, form, raw = config, cell_format(kv), cell_format(raw_format)
        self.n_slots, self.n_cells, self.n_blocks = n_slots, n_cells, n_cells // c.indexer_block + 1
        vectors, scales = (n_slots, n_cells, c.n_kv_heads, c.head_dim), (n_slots, n_cells, c.n_kv_heads, form.n_scales(c.head_dim))
        self.k_codes, self.v_codes = self._poison(vectors, form.code_type), self._poison(vectors, form.code_type)
        self.k_scales, self.v_scales = self._poison(scales, np.uint16), self._poison(scales, np.uint16)
        self.raw = self._poison((n_slots, n_cells, 1, c.indexer_dim), raw.code_type)
        self.raw_scales = np.zeros((n_slots, n_cells, 1, 0), np.uint16)
        self.pooled = np.full((n_slots, self.n_blocks, c.indexer_dim), np.nan, np.float32)

    @staticmethod
    def _poison(shape: tuple, kind: type) -> np.ndarray:
        return np.full(shape, {np.float32: np.nan, np.uint16: 0x7E00, np.int8: 99}[kind], kind)

    def on_card(self, card):
        """Return `heads.AttentionCells` with a copy of everything."""
        from strata.cuda.attention.heads import AttentionCells

        arrays = (self.k_codes, self.k_scales, self.v_codes, self.v_scales, self.raw, self.pooled)
        return AttentionCells(self.n_cells, self.n_blocks, *(flat(card, a if a.size else np.zeros(1, a.dtype)) for a in arrays))

    def same_as(self, what: str, placed) -> None:
        """Fail unless the card's cells are these."""
        for name in ("k_codes", "k_scales", "v_codes", "v_scales", "raw", "pooled"):
            mine, got = getattr(self, name), getattr(placed, name).copy_to_host()
            if mine.dtype == np.float32:
                assert_same_bits(f"{name}, {what}", got.reshape(mine.shape), mine)
            elif mine.size:
                assert np.array_equal(folded_halves(got.reshape(mine.shape)), folded_halves(mine)), f"{name}, {what}"


def folded_halves(codes: np.ndarray) -> np.ndarray:
    """Codes with every half-precision NaN folded to one; int8 codes as they are."""
    return codes if codes.dtype != np.uint16 else np.where((codes & 0x7FFF) > 0x7C00, np.uint16(0x7E00), codes)


def check_heads(card, control, config: ModelConfig, kv: str, raw_format: str, windows: list[Window], n_slots: int, n_cells: int) -> None:
    """Windows one after the other: queries, stored cells, pooled keys and indexer queries after each."""
    from strata.cuda.attention.heads import IndexerInputs, launch_heads

    c, eps = config, np.float32(config.rms_epsilon)
    cells = Cells(c, kv, raw_format, n_slots, n_cells)
    placed, table = cells.on_card(card), rotary_table(c.rope_base, c.rope_dims, n_cells)
    q_norm, k_norm, iq_norm, ik_norm = (normal(20 + i, n) for i, n in enumerate((c.head_dim, c.head_dim, c.indexer_dim, c.indexer_dim)))
    placed_table = flat(card, table)
    norms = [flat(card, a) for a in (q_norm, k_norm, iq_norm, ik_norm)]
    for number, w in enumerate(windows):
        n, seed, what = w.n_rows, 30 + 10 * number, f"window {number} of {w.n_rows} rows"
        projected, k, v = random_rows(seed, n, c.q_gate_width), random_rows(seed + 1, n, c.kv_width), random_rows(seed + 2, n, c.kv_width)
        iq, raw = random_rows(seed + 3, n, c.indexer_width), random_rows(seed + 4, n, c.indexer_dim)
        queries, keys = np.empty((n, c.n_q_heads, c.head_dim), np.float32), np.empty((n, c.n_kv_heads, c.head_dim), np.float32)
        iqueries = np.empty((n, c.n_indexer_heads, c.indexer_dim), np.float32)
        host.finish_heads(projected, q_norm, eps, table, w.positions, 2 * c.head_dim, queries)
        host.finish_heads(k, k_norm, eps, table, w.positions, c.head_dim, keys)
        host.finish_heads(iq, iq_norm, eps, table, w.positions, c.indexer_dim, iqueries)
        store = host.store_cells(kv)
        store(keys, w.slots, w.positions, cells.k_codes, cells.k_scales)
        store(v.reshape(keys.shape), w.slots, w.positions, cells.v_codes, cells.v_scales)
        host.store_cells(raw_format)(raw[:, None, :], w.slots, w.positions, cells.raw, cells.raw_scales)
        host_indexer.pool_blocks(raw_format)(
            cells.raw, cells.raw_scales, c.indexer_block, ik_norm, eps, table, w.slots, w.positions, cells.pooled
        )
        out, indexer_out = GuardedOutput(card, queries.size), GuardedOutput(card, iqueries.size)
        indexer = IndexerInputs(flat(card, iq), flat(card, raw), norms[2], norms[3], indexer_out.inside)
        launch = launch_heads(
            card, c, tables_of(card, w), kv, raw_format, flat(card, projected), flat(card, k), flat(card, v), norms[0], norms[1],
            placed_table, out.inside, placed, indexer,
        )
        run(card, launch)
        assert_same_bits(f"queries, {what}", out.read(queries.shape), queries)
        assert_same_bits(f"indexer queries, {what}", indexer_out.read(iqueries.shape), iqueries)
        cells.same_as(what, placed)


def check_dense_heads(card, config: ModelConfig, window: Window, n_slots: int, n_cells: int) -> None:
    """Keys and values alone, as the draft layer stores them."""
    from strata.cuda.attention.heads import launch_heads

    c, n = config, window.n_rows
    cells, table = Cells(c, "f16", "f16", n_slots, n_cells), rotary_table(c.rope_base, c.rope_dims, n_cells)
    placed = cells.on_card(card)
    k, v, k_norm = random_rows(50, n, c.kv_width), random_rows(51, n, c.kv_width), normal(52, c.head_dim)
    keys = np.empty((n, c.n_kv_heads, c.head_dim), np.float32)
    host.finish_heads(k, k_norm, np.float32(c.rms_epsilon), table, window.positions, c.head_dim, keys)
    store = host.store_cells("f16")
    store(keys, window.slots, window.positions, cells.k_codes, cells.k_scales)
    store(v.reshape(keys.shape), window.slots, window.positions, cells.v_codes, cells.v_scales)
    launch = launch_heads(
        card, c, tables_of(card, window), "f16", "f16", None, flat(card, k), flat(card, v), None, flat(card, k_norm), flat(card, table),
        None, placed, None,
    )
    run(card, launch)
    cells.same_as("dense", placed)


def check_selection(card, control, config: ModelConfig, window: Window, n_cells: int, ties: bool) -> None:
    """Block scores and chosen cells; with `ties`, scores of few different values, zeros and NaN among them."""
    from strata.cuda.attention.indexer import launch_scores
    from strata.cuda.attention.selection import launch_selection

    c, w, n, block, width = config, window, window.n_rows, config.indexer_block, config.selection_width
    n_slots, n_blocks, most = int(w.slots.max()) + 1, n_cells // block + 1, n_cells // block
    pooled, queries = normal(60, n_slots, n_blocks, c.indexer_dim), normal(61, n, c.n_indexer_heads, c.indexer_dim)
    if ties:
        pooled = np.ascontiguousarray(np.sign(pooled[:, np.arange(n_blocks) % 7]) * np.float32(0.5))
        pooled[:, 3::11] = 0
        pooled[:, 5::97] = np.nan
    n_complete = (w.positions + 1) // block
    n_scored = np.where(w.positions + 1 <= width, 0, n_complete).astype(np.int32)
    scores = np.full((n, most), -77, np.float32)
    host_indexer.score_blocks(control, queries, pooled, w.slots, n_scored, scores)
    cells, counts = np.full((n, width), -1, np.int32), np.empty(n, np.int32)
    host_indexer.choose_cells(control, scores, w.positions, block, width, cells, counts)
    tables = tables_of(card, w)
    placed, got_cells, got_counts = flat(card, np.full((n, most), -77, np.float32)), flat(card, np.full((n, width), -1, np.int32)), flat(card, counts * 0)
    run(
        card,
        launch_scores(card, c, tables, flat(card, queries), flat(card, pooled), n_blocks, most, placed),
        launch_selection(card, c, tables, placed, most, got_cells, got_counts),
    )
    assert_same_bits("scores", read(placed, n, most), scores)
    assert np.array_equal(read(got_counts, n), counts), "counts"
    assert np.array_equal(read(got_cells, n, width), cells), "cells"


def check_attention(card, control, config: ModelConfig, kv: str, window: Window, n_cells: int, seed: int) -> None:
    """Attention over random ascending cells (or all, where a row has fewer than the width): side by side, looped, dense."""
    from strata.cuda.attention.split_attention import AttentionOutput, SplitScratch, launch_attention

    c, w, n, size = config, window, window.n_rows, config.head_dim
    generator, n_slots = np.random.default_rng(seed), int(window.slots.max()) + 1
    cells = filled_cells(c, kv, n_slots, n_cells, seed)
    projected = random_rows(seed + 5, n, c.q_gate_width)
    queries = random_rows(seed + 6, n, c.attention_width).reshape(n, c.n_q_heads, size)
    width = min(c.selection_width, n_cells)
    chosen, counts = np.full((n, width), 1 << 20, np.int32), np.minimum(w.positions + 1, width).astype(np.int32)
    for row in range(n):
        chosen[row, : counts[row]] = np.sort(generator.choice(w.positions[row] + 1, counts[row], replace=False))
    scale = np.float32(1) / np.sqrt(np.float32(size))
    everything = (np.tile(np.arange(n_cells, dtype=np.int32), (n, 1)), (w.positions + 1).astype(np.int32))
    tables, placed = tables_of(card, w), cells.on_card(card)
    for name, (ids, limits), is_dense in (("chosen", (chosen, counts), False), ("dense", everything, True)):
        wanted, gated = np.empty_like(queries), np.empty((n, c.attention_width), np.float32)
        host.attend(kv)(
            control, queries, cells.k_codes, cells.k_scales, cells.v_codes, cells.v_scales, w.slots, ids, limits, scale, wanted
        )
        host.gate(wanted, projected, gated)
        most = n_cells if is_dense else width
        n_pairs = n * ((most + 63) // 64)
        for way, fits in (("side by side", n_pairs), ("looped", 0)):
            pairs = max(fits, 1) * c.n_q_heads
            scratch = SplitScratch(fits, *(card.upload("triples", np.full(m, np.nan, np.float32)) for m in (pairs, pairs, pairs * size)))
            out, after, coded = GuardedOutput(card, queries.size), GuardedOutput(card, queries.size), CodedOutput(card, n, c.attention_width)
            output = AttentionOutput(flat(card, projected), out.inside, after.inside, coded.coded)
            launches = launch_attention(
                card, c, tables, kv, most, flat(card, queries), placed, None if is_dense else flat(card, ids), flat(card, limits), width, scale,
                scratch, output,
            )
            run(card, launches)
            what = f"{name} {way}, {kv}, {n} rows"
            assert_same_bits(f"attended, {what}", out.read(queries.shape), wanted)
            assert_same_bits(f"gated, {what}", after.read(gated.shape), gated)
            coded.check(f"gated, {what}", control, gated)


def filled_cells(config: ModelConfig, kv: str, n_slots: int, n_cells: int, seed: int) -> Cells:
    """Cells that the host stored from random rows, all of them."""
    cells, store = Cells(config, kv, "f16", n_slots, n_cells), host.store_cells(kv)
    slots = np.repeat(np.arange(n_slots, dtype=np.int32), n_cells)
    positions = np.tile(np.arange(n_cells, dtype=np.int32), n_slots)
    for i, (codes, scales) in enumerate(((cells.k_codes, cells.k_scales), (cells.v_codes, cells.v_scales))):
        store(normal(seed + i, len(slots), config.n_kv_heads, config.head_dim), slots, positions, codes, scales)
    return cells


@njit(error_model="numpy")
def _merged(tops, totals, triples, lengths, out):
    """The host's merge of whole rows."""
    top, total = np.empty(1, np.float32), np.empty(1, np.float32)
    for row in range(out.shape[0]):
        for head in range(out.shape[1]):
            for split in range((lengths[row] + 63) // 64):
                merge(split == 0, 0, tops[row, head, split], totals[row, head, split], triples[row, head, split], top, total, out[row, head])
            for i in range(out.shape[2]):
                out[row, head, i] = div(out[row, head, i], total[0])


def check_merge(card, control, config: ModelConfig, lengths: list[int], most_cells: int, seed: int) -> None:
    """The merge alone, of random triples whose maxima rise, fall, are equal and are zeros of both signs; rows have their own counts."""
    from strata.cuda.attention import merging
    from strata.cuda.attention.split_attention import AttentionShape
    from strata.cuda.card.launch import Launch, Shape
    from strata.cuda.packed.group_codes import arrays_of

    c, n, size, n_splits = config, len(lengths), config.head_dim, (most_cells + 63) // 64
    generator, shape = np.random.default_rng(seed), (n, config.n_q_heads, n_splits)
    tops, totals, triples = generator.choice(np.float32([-3, -0.0, 0, 0.5, 7]), shape), np.abs(normal(seed, *shape)) + 1, normal(seed + 1, *shape, size)
    tops[:, 0], tops[:, 1] = np.sort(tops[:, 0]), np.sort(tops[:, 1])[:, ::-1]
    totals = totals.astype(np.float32)
    projected, out = random_rows(seed + 2, n, c.q_gate_width), np.empty((n, c.n_q_heads, size), np.float32)
    _merged(tops, totals, triples, np.asarray(lengths), out)
    gated = np.empty((n, c.attention_width), np.float32)
    host.gate(out, projected, gated)
    attended, after, coded = GuardedOutput(card, out.size), GuardedOutput(card, out.size), CodedOutput(card, n, c.attention_width)
    limits = flat(card, np.asarray(lengths, np.int32))
    arguments = (
        *(flat(card, a) for a in (tops, totals, triples)), limits, limits, np.int32(n_splits), flat(card, projected), attended.inside, after.inside,
        *arrays_of(coded.coded),
    )
    kind = AttentionShape(c.n_q_heads, c.n_kv_heads, size, "f16", False, False)
    place = Shape((merging.grid_of(kind), n), 32 * merging.WARPS, merging.SHARED_BYTES)
    run(card, Launch(card, merging.merge_kernel(kind, card.target), place, arguments))
    what = f"{lengths} of {most_cells} cells"
    assert_same_bits(f"merged, {what}", attended.read(out.shape), out)
    assert_same_bits(f"merged and gated, {what}", after.read(gated.shape), gated)
    coded.check(f"merged and gated, {what}", control, gated)
