"""The document's vectors of sums, norms, products, scan and hashes, from the host's kernels and from the stranger."""

from pathlib import Path

import numpy as np
import pytest

from strata.cpu_pool.team import Team
from strata.host import gdn, ngrams
from strata.host.float_products import float_product
from strata.host.dots import dot8
from strata.host.matrix import Activations, Matrix
from strata.host.norms import inverse_l2, inverse_rms, sum_of_squares
from strata.model.tensor import Tensor
from strata.numerics.cpu import kernel
from tests.unit.host.document_blocks import BLOCKS, brain_row
from tests.unit.numerics.document import float32_of, hex_of, sequence, text, vectors
from tests.unit.numerics.stranger import gdn as plain_gdn
from tests.unit.numerics.stranger import ngrams as plain_ngrams
from tests.unit.numerics.stranger.products import times

CONTROL = Team(1).control


@kernel
def norms(x, eps, out):
    out[0], out[1], out[2] = inverse_rms(x, eps), inverse_l2(x, eps), sum_of_squares(x)


@kernel
def dot(a, b, out):
    out[0] = dot8(a, b, a.shape[0])


@pytest.mark.parametrize("row", vectors("norms"), ids=lambda row: row[0])
def test_norms(row):
    out = np.empty(3, np.float32)
    norms(sequence(3, int(row[0])), float32_of("358637bd"), out)
    assert [hex_of(value) for value in out[:2]] == row[1:]


@pytest.mark.parametrize("row", [row for row in vectors("sums") if row[1] in ("8", "256")], ids=lambda row: f"{row[0]} in {row[1]}")
def test_sums_in_8_and_256_lanes(row):
    a, b, out = sequence(1, int(row[0])), sequence(2, int(row[0])), np.empty((1, 1), np.float32)
    if row[1] == "8":
        dot(a, b, out[0])
    else:
        float_product("F32")(CONTROL, a[None], b[None], out)
    assert hex_of(out[0, 0]) == row[2]


@pytest.mark.parametrize("row", vectors("products"), ids=lambda row: row[0])
def test_products(row):
    name, expected = row
    stored = brain_row() if name == "BF16" else BLOCKS[name]().reshape(1, -1)
    x = sequence(8, 512 if name == "Q6_K" else 320)[None]
    assert hex_of(times(name, stored, x)[0, 0]) == expected
    raw = stored.reshape(-1).view(np.uint8).copy()
    raw.flags.writeable = False
    matrix = Matrix(Tensor("vector", name, (1, x.shape[1]), raw, Path("none")))
    assert hex_of(matrix.times(Activations(x, CONTROL, np.full(1, 32, np.int32)), True, CONTROL)[0, 0]) == expected


def test_the_scan():
    (expected,) = vectors("scan")
    w = np.stack([np.concatenate([sequence(first + t, 8) for first in (40, 30, 50)]) for t in range(2)])
    g, beta, memory = np.full((2, 1), 0.75, np.float32), np.full((2, 1), 0.5, np.float32), np.zeros((1, 1, 8, 8), np.float32)
    assert list(map(hex_of, plain_gdn.scanned(w, g, beta, memory[0], 1)[0][1])) == expected
    o, zero, two = np.empty((2, 8), np.float32), np.zeros(1, np.int32), np.full(1, 2, np.int32)
    read_scale = np.float32(1) / np.sqrt(np.float32(8))
    gdn.scan(CONTROL, w, g, beta, memory, zero, two, zero, True, 1, read_scale, o, np.empty((0, 1, 2), np.uint64))
    assert list(map(hex_of, o[1])) == expected


def test_the_hashes_of_n_grams():
    multipliers = np.array([0x158EEB0ED789, 0x124A0230FF35, 0x752F6EB3BA7], np.uint64)
    assert ", ".join(f"{int(m):x}" for m in multipliers) in text()
    sizes, zeros = np.full(2, 1 << 62, np.uint64), np.zeros(2, np.uint64)
    for c0, c1, c2, bigram, trigram in vectors("hashes"):
        tokens = [int(c0), int(c1), int(c2)]
        assert [f"{h:016x}" for h in plain_ngrams.hashes(tokens, multipliers)] == [bigram, trigram]
        out, row = np.empty((1, 2), np.int64), np.zeros(1, np.int32)
        ngrams.table_rows(np.array(tokens[:1], np.int32), row, row, row, np.array([tokens[1:]], np.int32), -2, multipliers, sizes, zeros, 1, out)
        assert out[0].tolist() == [int(bigram, 16) % (1 << 62), int(trigram, 16) % (1 << 62)]


def test_some_hash_product_passes_two_to_the_63():
    assert any(int(row[0]) * 0x158EEB0ED789 >= 1 << 63 for row in vectors("hashes"))
    assert any(int(row[0]) * 0x158EEB0ED789 >= 1 << 64 for row in vectors("hashes"))
