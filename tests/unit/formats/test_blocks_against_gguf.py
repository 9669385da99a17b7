"""Every format's decoding against the gguf library's, on random and extreme blocks.

Equality is exact.  Without an offset every product d * s * q has at most 24 significant bits, so neither gguf's order
of multiplication nor ours rounds.  With an offset both round once, the same exact sum.  (+0 and -0 compare equal: gguf
multiplies d * s first, so that a zero's sign may differ.)
"""

import gguf.quants
import numpy as np
import pytest

from strata.formats.unpack import dequantise
from tests.unit.formats.blocks import ALL, KNOWN_TO_GGUF, decode, n_halves, random_blocks, set_half

N_BLOCKS = 2000
by_name = pytest.mark.parametrize("form", KNOWN_TO_GGUF, ids=lambda form: form.name)
any_form = pytest.mark.parametrize("form", ALL, ids=lambda form: form.name)


def gguf_values(form, blocks):
    return gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType(form.type_id)).reshape(-1)


def assert_equal(form, blocks):
    expected = gguf_values(form, blocks)
    assert np.isfinite(expected).all()
    assert np.array_equal(decode(form, blocks).exact_values().astype(np.float32), expected)
    assert np.array_equal(dequantise(form, blocks, len(blocks) * form.block_weights), expected)


@by_name
def test_random_blocks_decode_to_ggufs_values(form):
    assert_equal(form, random_blocks(form, N_BLOCKS, seed=1))


@by_name
def test_blocks_with_extreme_and_negative_scales_decode_to_ggufs_values(form):
    numbers = [65504, -65504, 2.0**-24, -(2.0**-24), 2.0**-14, 1.0, -1.0, 0.0, -0.0]
    halves = np.array(numbers, np.float16).view(np.uint16)
    for field in range(n_halves(form)):
        blocks = random_blocks(form, len(halves), seed=2)
        set_half(form, blocks, field, halves)
        assert_equal(form, blocks)


@by_name
def test_blocks_of_one_repeated_byte_decode_to_ggufs_values(form):
    blocks = np.repeat(np.arange(256, dtype=np.uint8)[:, None], form.block_bytes, axis=1)
    for field in range(n_halves(form)):
        set_half(form, blocks, field, np.float16(-1.5).view(np.uint16))
    assert_equal(form, blocks)


@by_name
def test_values_without_an_offset_are_exact_in_float32(form):
    exact = decode(form, random_blocks(form, 200, seed=3)).exact_values()
    rounds = not np.array_equal(exact.astype(np.float32).astype(np.float64), exact)
    assert rounds == form.has_offset


@any_form
def test_flipping_any_single_bit_of_a_block_changes_a_value(form):
    block = _block_in_which_every_bit_counts(form)
    n_bits = 8 * form.block_bytes
    flipped = np.repeat(block, n_bits, axis=0)
    flipped[np.arange(n_bits), np.arange(n_bits) // 8] ^= (1 << (np.arange(n_bits) % 8)).astype(np.uint8)
    expected = dequantise(form, block, form.block_weights)
    found = dequantise(form, flipped, n_bits * form.block_weights).reshape(n_bits, -1)
    unchanged = np.flatnonzero((found == expected).all(axis=1))
    assert unchanged.size == 0, f"bits {unchanged} of a {form.name} block play no role"


def _block_in_which_every_bit_counts(form):
    """A random block without zero sub-scales; one of them would hide the bits of its weights."""
    for seed in range(100):
        block = random_blocks(form, 1, seed)
        for field in range(n_halves(form)):
            set_half(form, block, field, np.float16(0.75).view(np.uint16))
        parts = decode(form, block)
        if parts.s.all() and (parts.offset.all() or not form.has_offset):
            return block
    raise AssertionError("no such block in 100 seeds")
