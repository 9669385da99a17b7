"""The same factories under another seam: in numpy's 32-bit arithmetic, which never widens, all bits are the same."""

import numpy as np
import pytest

from strata.formats.contract import GROUP
from tests.unit.formats.blocks import ALL, decode, random_blocks
from tests.unit.formats.plain_seam import PLAIN


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("form", ALL, ids=lambda form: form.name)
def test_words_and_scales_are_those_of_the_compiled_code(form):
    blocks = random_blocks(form, 6, seed=1)
    reader, expected = form.build(PLAIN), decode(form, blocks)
    raw, per_block = blocks.reshape(-1), form.block_weights // GROUP
    for g in range(len(blocks) * per_block):
        at, group = g // per_block * form.block_bytes, g % per_block
        words = [reader.word(raw, at, group, j) for j in range(8)]
        scales = reader.scales(raw, at, group)
        assert {type(word) for word in words} == {np.int32}
        assert [type(part) for part in scales] == [np.float32, np.int32, np.int32, np.float32]
        assert np.array_equal(np.array(words, np.int32).view(np.int8), expected.q[g])
        assert scales == (expected.d[g], *expected.s[g], expected.offset[g])
