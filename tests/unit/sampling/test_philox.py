"""Random words by counter: the published vectors, and what a draw depends on."""

import pytest

from strata.sampling.philox import LARGEST_SEED, WORD, philox, uniform

VECTORS = (
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((WORD,) * 4, (WORD,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
)


@pytest.mark.parametrize(("counter", "key", "words"), VECTORS)
def test_the_vectors_of_random123_come_out(counter, key, words):
    assert philox(counter, key) == words


def test_a_draw_is_the_first_words_upper_24_bits():
    assert uniform(0, 0) == (0x6627E8D5 >> 8) / (1 << 24)


def test_every_bit_of_seed_and_position_matters():
    draws = {uniform(1 << bit, 0) for bit in range(64)} | {uniform(0, 1 << bit) for bit in range(32)}
    assert len(draws) == 96


def test_draws_lie_in_the_unit_interval_and_fill_it():
    draws = [uniform(LARGEST_SEED, position) for position in range(4000)]
    assert all(0 <= u < 1 and u * 2**24 == int(u * 2**24) for u in draws)
    filled = [sum(tenth <= u * 10 < tenth + 1 for u in draws) for tenth in range(10)]
    assert min(filled) > 330 and max(filled) < 470
