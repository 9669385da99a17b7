"""Hashes of records: the same elements give the same hash, wherever they lie and however wide they are."""

import numpy as np
import pytest

from strata.numerics.hashing import FLOAT, HALF, line_hashes, row_hashes

TYPES = (np.float32, np.uint16, np.int8, np.int32, np.int64)


def values(kind, shape=(6, 48), seed=7):
    return (np.random.default_rng(seed).standard_normal(shape) * 100).astype(kind)


@pytest.mark.parametrize("kind", TYPES)
def test_records_of_lines_hash_as_rows_do(kind):
    rows = values(kind)
    whole = row_hashes(rows)
    assert np.array_equal(line_hashes(rows, np.array([3, 0], np.int32)), whole[[3, 0]])
    halves = rows.reshape(12, -1)
    assert np.array_equal(line_hashes(halves, np.array([[6, 7, -1], [0, 1, -1]], np.int32)), whole[[3, 0]])


@pytest.mark.parametrize("kind", (np.float32, np.int32, np.int8))
def test_only_the_counted_elements_are_hashed(kind):
    rows = values(kind)
    lengths = np.array([20, 0, 48, 1, 30, 7], np.int32)
    cut = line_hashes(rows, np.arange(6, dtype=np.int32), lengths)
    for row, length in enumerate(lengths):
        assert np.array_equal(cut[row], row_hashes(rows[row : row + 1, :length])[0])
    rows[0, 20:] = 1
    assert np.array_equal(line_hashes(rows, np.arange(6, dtype=np.int32), lengths), cut)


@pytest.mark.parametrize("kind", TYPES)
def test_one_bit_changes_the_hash_of_its_row_only(kind):
    rows = values(kind)
    before = row_hashes(rows)
    rows[2].view(f"u{rows.itemsize}")[11] ^= 1
    after = row_hashes(rows)
    assert (before != after).any(axis=1).tolist() == [False, False, True, False, False, False]


@pytest.mark.parametrize("kind", TYPES)
def test_the_order_of_elements_counts(kind):
    rows = values(kind)
    assert (row_hashes(rows[:, ::-1]) != row_hashes(rows)).all()


@pytest.mark.parametrize(("kind", "rule"), [(np.float32, FLOAT), (np.uint16, HALF)])
def test_every_nan_has_one_hash_and_the_zeros_have_two(kind, rule):
    bits = np.dtype(f"u{np.dtype(kind).itemsize}")
    _, largest, folded = rule
    sign = 1 << (8 * bits.itemsize - 1)
    patterns = np.array([[int(folded)], [int(largest) + 1], [sign | (int(largest) + 1)], [int(largest)], [0], [sign]], bits).view(kind)
    hashes = [tuple(pair) for pair in row_hashes(patterns).tolist()]
    assert hashes[0] == hashes[1] == hashes[2]
    assert len(set(hashes)) == 4
