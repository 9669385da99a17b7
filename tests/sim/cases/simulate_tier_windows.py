"""Experts blocks with a tier at toy sizes: router, dispatch, fetch, products, pool and meeting together."""

import numpy as np
import pytest

from tests.gpu.checks_experts import forms_of
from tests.gpu.checks_tier import with_experts
from tests.gpu.geometry import TOY
from tests.gpu.tier_block import LAYERS, TierBlock

FEW = with_experts(TOY, 8, 2, 32)
FORMS = forms_of("Q8_0", "Q4_0", "Q8_0", "Q4_0")


@pytest.mark.parametrize(("n_slots", "share", "n_places", "n_rows"), [(8, 0, 0, 1), (1, 128, 2, 3), (16, 0, 0, 1)], ids=["half", "a slot and a ring", "all"])
def test_blocks_have_the_bits_of_the_host(n_slots, share, n_places, n_rows, card, control):
    with TierBlock(card, control, FEW, FORMS, n_slots, share, n_places) as block:
        _, fetched, pooled = block.check(n_rows, block.one_by_one, turns=2 if n_slots == 8 else 1)
        assert (fetched > 0) == (n_places > 0) and (pooled == 0) == (n_slots == 16)
        assert set(block.jobs.calls) <= {(layer, False) for layer in LAYERS} and bool(block.jobs.calls) == (n_slots < 16)


def test_a_prompt_chunk_has_the_bits_of_the_host(card, control):
    with TierBlock(card, control, FEW, FORMS, 5, 200, 2) as block:
        assert block.check(9, block.one_by_one, is_prompt=True, turns=1).min() > 0
        assert not block.tier.served[0].any() and block.meetings.mailbox.areas(9).n_rows == 256


def test_a_slot_with_other_bytes_than_the_table_says_is_noticed(card, control):
    with TierBlock(card, control, FEW, FORMS, 16) as block:
        block.tier.memory.buffer.copy_to_device(np.zeros(block.tier.memory.buffer.size, np.uint8))
        with pytest.raises(AssertionError, match="differ"):
            block.check(1, block.one_by_one)
