"""Routing, grouping, table rows, n-grams, picks and drafts on a card against the host."""

import numpy as np

from strata.formats.contract import WeightFormat
from strata.formats.unpack import dequantise
from strata.host import experts as host_experts
from strata.host import gdn as host_gdn
from strata.host import ngrams as host
from strata.host.draft_picks import pick_drafts
from strata.model.config import ModelConfig
from strata.rows import Window
from tests.gpu.geometry import flat, normal, read, run, tables_of
from tests.gpu.support import GuardedOutput, assert_same_bits, packed_weights, random_rows


def router_logits(seed: int, n_rows: int, n_experts: int) -> np.ndarray:
    """Logits with exact ties, signed zeros, infinities and NaN, and rows of one value."""
    logits = np.round(normal(seed, n_rows, n_experts) * 4).astype(np.float32) / 4
    logits[:, ::9] = -0.0
    logits[1::5, 3::7] = np.nan
    logits[2::5, 1::11] = np.inf
    logits[3::5] = 0.25
    return logits


def check_routing(card, config: ModelConfig, row_counts) -> None:
    """Ids, weights and the grouped entries; what lies behind the lists is the number of entries."""
    from strata.cuda.experts.routing import launch_route_and_group
    from strata.cuda.packed.products import make_lists

    c = config
    for n in row_counts:
        logits = router_logits(n, n, c.n_experts)
        ids, weights = np.empty((n, c.n_used), np.int32), np.empty((n, c.n_used), np.float32)
        host_experts.route(logits, ids, weights)
        experts, starts = np.empty(n * c.n_used, np.int32), np.empty(n * c.n_used + 1, np.int32)
        entry_rows, entry_of = np.empty(n * c.n_used, np.int32), np.empty((n, c.n_used), np.int32)
        n_listed = host_experts.group_entries(ids, experts, starts, entry_rows, entry_of, np.empty(c.n_experts, np.int32))
        lists = make_lists(card, "lists", min(c.n_experts, n * c.n_used), n * c.n_used)
        got_ids, got_entry_of = flat(card, ids * 0 - 9), flat(card, entry_of * 0 - 9)
        first, count = (card.empty("scratch", c.n_experts, np.int32) for _ in range(2))
        out = GuardedOutput(card, n * c.n_used)
        run(card, launch_route_and_group(card, c, flat(card, logits), n, got_ids, out.inside, lists, got_entry_of, first, count))
        assert np.array_equal(read(got_ids, n, c.n_used), ids), f"ids, {n} rows"
        assert_same_bits(f"weights, {n} rows", out.read((n, c.n_used)), weights)
        assert read(lists.n_listed, 1)[0] == n_listed
        assert np.array_equal(lists.experts.copy_to_host()[:n_listed], experts[:n_listed]), f"experts, {n} rows"
        got = lists.starts.copy_to_host()
        assert np.array_equal(got[: n_listed + 1], starts[: n_listed + 1]) and (got[n_listed:] == n * c.n_used).all(), f"starts, {n} rows"
        assert np.array_equal(lists.entry_rows.copy_to_host(), entry_rows), f"entry rows, {n} rows"
        assert np.array_equal(read(got_entry_of, n, c.n_used), entry_of), f"entries, {n} rows"


def check_lookup(card, form: WeightFormat, columns: int, n_copies: int) -> None:
    """Rows of a table in a block format, each several times."""
    from strata.cuda.residual.lookup import launch_lookup

    n_table, rows = 50, np.array([7, 0, 49, 7, 33], np.int64)
    raw, row_bytes = packed_weights(form, 1, n_table, columns), columns // form.block_weights * form.block_bytes
    wanted = dequantise(form, raw[: n_table * row_bytes], n_table * columns).reshape(n_table, columns)[rows]
    for index in (rows, rows.astype(np.int32)):
        out = GuardedOutput(card, len(rows) * n_copies * columns)
        run(card, launch_lookup(card, form.name, flat(card, raw), row_bytes, flat(card, index), len(rows), columns, n_copies, out.inside))
        assert_same_bits(form.name, out.read((len(rows), n_copies, columns)), np.repeat(wanted[:, None], n_copies, axis=1))


def check_float_lookup(card, type_name: str, columns: int) -> None:
    """Rows of a table of plain floats."""
    from strata.cuda.residual.lookup import launch_lookup

    values = np.random.default_rng(3).standard_normal((20, columns)).astype(np.float16)
    widened = values.astype(np.float32)
    stored = {"F16": values, "F32": widened, "BF16": (widened.view(np.uint32) >> 16).astype(np.uint16)}[type_name]
    wanted = widened if type_name != "BF16" else (stored.astype(np.uint32) << 16).view(np.float32)
    rows, out = np.array([3, 19, 0], np.int32), GuardedOutput(card, 3 * columns)
    raw = stored.reshape(-1).view(np.uint8)
    run(card, launch_lookup(card, type_name, flat(card, raw), raw.size // 20, flat(card, rows), 3, columns, 1, out.inside))
    assert_same_bits(type_name, out.read((3, columns)), wanted[rows])


def check_ngrams(card, config: ModelConfig, window: Window, seed: int) -> None:
    """Hashes, gate, convolution, and what is kept of the window."""
    from strata.cuda.residual.ngrams import launch_convolve_add, launch_gate, launch_hash, launch_keep

    c, w, n, n_slots = config, window, window.n_rows, 6
    eps, width = np.float32(c.rms_epsilon), c.residual_width
    tail, history = normal(seed, n_slots, c.ple_history, width), np.random.default_rng(seed).integers(-1, 4096, (n_slots, 2)).astype(np.int32)
    history[:, 1] = np.where(history[:, 0] < 0, -1, history[:, 1])
    tokens = w.tokens.copy()
    tokens[1::3] = c.ple_eos_token_id
    window = Window(**{name: getattr(w, name) for name in w.__slots__} | {"tokens": tokens})
    multipliers, sizes, offsets = (np.array(a, np.uint64) for a in (c.ple_multipliers, c.ple_sizes, c.ple_offsets))
    rows = np.empty((n, c.n_ple_heads), np.int64)
    host.table_rows(
        tokens, w.segment_of_row, w.first, w.segment_slot, history, c.ple_eos_token_id, multipliers, sizes, offsets, c.ple_heads_per_ngram, rows
    )
    key, value, residual = random_rows(seed + 1, n, width), random_rows(seed + 2, n, c.hidden), random_rows(seed + 3, n, width)
    residual = residual.reshape(n, c.n_streams, c.hidden)
    norms, conv = [normal(seed + 4 + i, width) for i in range(3)], normal(seed + 7, width, c.ple_conv_taps)
    gated, conv_rows, after = np.empty_like(key), np.empty_like(key), residual.copy()
    host.gate_values(residual, key, value, *norms, eps, np.sqrt(np.float32(c.hidden)), gated, conv_rows)
    host.convolve_add(after, gated, conv_rows, tail, conv, c.ple_dilation, w.segment_of_row, w.first, w.segment_slot)
    kept = np.array([max(0, s_count - i % 3) for i, s_count in enumerate(w.count)], np.int32)
    kept_tail, kept_history = tail.copy(), history.copy()
    host_gdn.keep_tail(conv_rows, kept_tail, w.first, w.segment_slot, kept)
    host.keep_history(tokens, w.first, w.segment_slot, kept, kept_history)

    tables, placed = tables_of(card, window), flat(card, residual)
    table_rows, got_gated, got_rows = flat(card, rows * 0), GuardedOutput(card, key.size), GuardedOutput(card, key.size)
    got_tail, got_history = flat(card, tail), flat(card, history)
    all_kept = flat(card, np.concatenate((kept, np.zeros(tables.n_segments - len(kept), np.int32))))
    run(
        card,
        launch_hash(card, c, tables, got_history, *(flat(card, a) for a in (multipliers, sizes, offsets)), table_rows),
        launch_gate(card, c, n, placed, flat(card, key), flat(card, value), *(flat(card, a) for a in norms), got_gated.inside, got_rows.inside),
        launch_convolve_add(card, c, tables, placed, got_gated.inside, got_rows.inside, got_tail, flat(card, conv)),
        launch_keep(card, c, tables, all_kept, got_rows.inside, got_tail, got_history),
    )
    assert np.array_equal(read(table_rows, *rows.shape), rows), "table rows"
    assert_same_bits("gated", got_gated.read(key.shape), gated)
    assert_same_bits("convolution rows", got_rows.read(key.shape), conv_rows)
    assert_same_bits("residual", read(placed, *after.shape), after)
    assert_same_bits("tail", read(got_tail, *tail.shape), kept_tail)
    assert np.array_equal(read(got_history, *history.shape), kept_history), "history"


def check_drafts(card, config: ModelConfig, n_rows: int, n: int) -> None:
    """The draft layer's sum of streams, and its picks with their probabilities."""
    from strata.cuda.drafting.drafts import launch_add_to_streams, launch_draft_picks

    made, e = random_rows(5, n_rows, config.residual_width), random_rows(6, n_rows, config.hidden)
    wanted = made.reshape(n_rows, config.n_streams, config.hidden) + e[:, None]
    placed = flat(card, made)
    run(card, launch_add_to_streams(card, config, placed, flat(card, e), n_rows))
    assert_same_bits("streams", read(placed, *wanted.shape), wanted)
    logits = np.round(normal(7, n_rows, n) * 8).astype(np.float32) / 4
    best, probability = np.empty(n_rows, np.int32), np.empty(n_rows, np.float32)
    pick_drafts(logits, best, probability)
    got, out = card.zeros("best", n_rows, np.int32), GuardedOutput(card, n_rows)
    run(card, launch_draft_picks(card, flat(card, logits), n_rows, n, got, out.inside))
    assert np.array_equal(read(got, n_rows), best)
    assert_same_bits("probability", out.read((n_rows,)), probability)
