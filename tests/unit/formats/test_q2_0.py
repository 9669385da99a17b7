"""Q2_0, which the gguf library does not decode, against a decoder written from its description."""

import numpy as np

from strata.formats.q2_0 import FORMAT
from strata.formats.unpack import dequantise
from tests.unit.formats.blocks import decode, decode_q2_0, random_blocks, set_half


def test_random_blocks_decode_as_described():
    blocks = random_blocks(FORMAT, 300, seed=1)
    expected = decode_q2_0(blocks)
    assert np.array_equal(decode(FORMAT, blocks).exact_values(), expected)
    assert np.array_equal(dequantise(FORMAT, blocks, blocks.shape[0] * 64), expected)


def test_every_byte_gives_its_four_codes_in_either_half_of_a_block():
    codes = np.arange(256, dtype=np.uint8).reshape(16, 16)
    blocks = np.concatenate([np.zeros((16, 2), np.uint8), codes], axis=1)
    set_half(FORMAT, blocks, 0, np.float16(1).view(np.uint16))
    swapped = blocks.copy()
    swapped[:, 2:] = np.roll(blocks[:, 2:], 8, axis=1)
    for stored in (blocks, swapped):
        assert np.array_equal(decode(FORMAT, stored).exact_values(), decode_q2_0(stored))


def test_a_negative_scale_puts_the_code_of_two_on_the_negative_side():
    block = np.zeros((1, 18), np.uint8)
    block[0, 2] = 0b11_10_01_00
    set_half(FORMAT, block, 0, np.float16(-0.5).view(np.uint16))
    assert dequantise(FORMAT, block, 64)[:5].tolist() == [0.5, 0.0, -0.5, -1.0, 0.5]


def test_a_decoder_that_takes_the_codes_from_the_top_differs():
    blocks = random_blocks(FORMAT, 4, seed=2)
    reversed_quads = decode_q2_0(blocks).reshape(-1, 4)[:, ::-1].reshape(-1)
    assert not np.array_equal(decode(FORMAT, blocks).exact_values(), reversed_quads)
