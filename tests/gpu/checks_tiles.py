"""Tiled products on a card against the host, bit by bit: blocks that take several output tiles in turn, and lists of any lengths.

Used on a card (tests/gpu) and in the simulator (tests/sim).  Does not know: which tilings there are.
"""

import numpy as np

from strata.formats.contract import WeightFormat
from tests.gpu.checks_projections import coded_on_card
from tests.gpu.geometry import JUNK, flat
from tests.gpu.support import GuardedOutput, assert_same_bits, coded_on_host, dense_on_host, packed_weights, product_on_host, random_rows


def set_turns(monkeypatch, turns: int) -> None:
    """Let blocks take `turns` output tiles from here on, however few blocks there are; 0 puts the rule back."""
    from strata.cuda.packed import products, tile_grids

    rule = tile_grids.turns_of
    monkeypatch.setattr(products, "turns_of", (lambda type_id, tile, *sizes: min(turns, tile.turns)) if turns else rule)


def check_dense(card, control, monkeypatch, form: WeightFormat, n_out: int, n_in: int, row_counts, all_turns, tile=None) -> None:
    """A matrix times several numbers of rows, with blocks of several numbers of output tiles."""
    from strata.cuda.packed.products import Packed, dense, dense_tiled

    raw = packed_weights(form, 31, n_out, n_in)
    weights = Packed(flat(card, raw), form.type_id, n_out, n_in)
    coded = coded_on_host(control, random_rows(32, max(row_counts), n_in))
    wanted, x = dense_on_host(control, form, raw, n_out, coded), coded_on_card(card, coded)
    for turns in all_turns:
        set_turns(monkeypatch, turns)
        for n_rows in row_counts:
            out = GuardedOutput(card, n_rows * n_out)
            (dense_tiled(card, weights, x, n_rows, out.inside, tile) if tile else dense(card, weights, x, n_rows, out.inside)).go()
            card.synchronise()
            assert_same_bits(f"{form.name}, {n_in} columns, {n_rows} rows, {turns} turns", out.read((n_rows, n_out)), wanted[:n_rows])


def check_listed(card, control, monkeypatch, form: WeightFormat, n_out: int, n_in: int, counts, all_turns, tile=None) -> None:
    """Listed experts with `counts` rows each (0 too), in shuffled order; surplus places of the lists hold junk."""
    from strata.cuda.packed.products import Packed, listed_tiled, make_lists, plan

    n_experts, n_entries = len(counts) + 2, sum(counts)
    raw = packed_weights(form, 33, n_out, n_in, n_experts=n_experts)
    weights = Packed(flat(card, raw), form.type_id, n_out, n_in, expert_bytes=n_out * (n_in // form.block_weights) * form.block_bytes)
    coded = coded_on_host(control, random_rows(34, n_entries, n_in))
    generator = np.random.default_rng(35)
    experts, entry_rows = generator.permutation(n_experts)[: len(counts)], generator.permutation(n_entries)
    starts = np.concatenate(([0], np.cumsum(counts)))
    wanted = product_on_host(control, form, raw, n_out, coded, experts, starts, entry_rows)
    x, lists = coded_on_card(card, coded), make_lists(card, "lists", len(counts) + 3, n_entries + 3)
    for array, values in ((lists.experts, experts), (lists.starts, starts), (lists.entry_rows, entry_rows), (lists.n_listed, [len(counts)])):
        whole = np.full(array.size, JUNK, np.int32)
        whole[: len(values)] = values
        array.copy_to_device(whole)
    for turns in all_turns:
        set_turns(monkeypatch, turns)
        out = GuardedOutput(card, n_entries * n_out)
        plan(card, lists, tile=tile).go()
        listed_tiled(card, weights, x, lists, out.inside, tile=tile).go()
        card.synchronise()
        assert_same_bits(f"{form.name}, experts of {counts} rows, {turns} turns", out.read((n_entries, n_out)), wanted)
