"""Other ways for launches of prompt chunks, as tests/gpu/measure/chunk_variants.py compares them: the bits of the host, or of the way in force."""

from dataclasses import replace

import numpy as np
import pytest

from strata.cuda.card.launch import Launch, Shape
from strata.cuda.experts.combine import Combined, launch_combine
from strata.cuda.packed.products import floats, make_coded
from strata.cuda.residual.streams import ROW_THREADS, launch_mix, threads_of
from tests.gpu.geometry import TOY, flat, normal
from tests.gpu.measure.chunk_variants import FACTORIES, KEPT, LATE, STORED_LATE, WHOLE, four_wide_kernel, rows_mix_kernel
from tests.gpu.measure.variants import Variant
from tests.gpu.support import GuardedOutput, assert_same_bits, floats_on_host, padded_bytes, random_float_weights, random_rows


@pytest.mark.parametrize(("kind", "type_name", "n_in", "n_out", "constants"), [
    ("tiles", "BF16", 1300, 33, LATE), ("tiles", "F16", 324, 33, LATE | KEPT), ("short tiles", "BF16", 320, 64, WHOLE),
    ("short tiles", "BF16", 352, 35, WHOLE | KEPT), ("short tiles", "F16", 324, 33, WHOLE | KEPT | STORED_LATE),
], ids=["late", "late, kept first", "whole copies", "whole copies, kept first", "no whole steps, kept first, stored late"])
def test_float_products(kind, type_name, n_in, n_out, constants, card, control, monkeypatch):
    """Rows and outputs beyond the end; one block takes several tiles of rows in turn."""
    monkeypatch.setattr("strata.cuda.floats.float_short_tiles.BLOCKS", 1)
    weights, x = random_float_weights(type_name, 8, n_out, n_in), random_rows(9, 17, n_in)
    out = GuardedOutput(card, 17 * n_out)
    placed = card.upload("weights", padded_bytes(weights))
    with Variant(kind, constants, FACTORIES).in_force():
        floats(card, type_name, placed, n_in, n_out, card.upload("x", x.reshape(-1)), 17, out.inside, kind=kind).go()
    assert_same_bits(kind, out.read((17, n_out)), floats_on_host(control, type_name, weights, x))


def test_experts_combined_four_values_a_thread(card):
    n, k, hidden = 3, 2, 160
    outputs, weights, gate = flat(card, normal(1, n * (k + 1), hidden)), flat(card, normal(2, n, k)), flat(card, normal(3, n))
    entry_of = flat(card, np.array([4, 0, 2, 5, 1, 3], np.int32))
    experts = Combined(k, outputs, entry_of, weights, outputs[n * k * hidden :], gate)
    wanted, out = GuardedOutput(card, n * hidden), GuardedOutput(card, n * hidden)
    launch_combine(card, hidden, experts, n, wanted.inside).go()
    Launch(card, four_wide_kernel(hidden, k, card.target), Shape((n, 1), threads_of(hidden)), (*experts.arrays, out.inside)).go()
    assert_same_bits("combined", out.read((n, hidden)), wanted.read((n, hidden)))


def test_streams_mixed_with_values_ahead(card):
    from strata.cuda.packed.group_codes import arrays_of

    n, c = 2, replace(TOY, hidden=96)
    normed, gate = flat(card, normal(4, n, c.residual_width)), flat(card, normal(5, n, c.residual_width))
    wanted, got = (GuardedOutput(card, n * c.hidden) for _ in range(2))
    codes, own_codes = (make_coded(card, "codes", n, c.hidden) for _ in range(2))
    launch_mix(card, c, normed, gate, n, wanted.inside, codes).go()
    shape, arguments = Shape((1, n), ROW_THREADS), (normed, gate, got.inside, *arrays_of(own_codes))
    Launch(card, rows_mix_kernel(c.hidden, c.n_streams, card.target), shape, arguments).go()
    assert_same_bits("mixed", got.read((n, c.hidden)), wanted.read((n, c.hidden)))
    assert np.array_equal(own_codes.codes.copy_to_host(), codes.codes.copy_to_host())
