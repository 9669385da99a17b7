"""Rows and weights whose products vanish: zeros of either sign, sums of codes that are 0, scales whose product is subnormal.

No value is infinite or NaN, so that every bit of a result is the contract's.  Does not know: kernels.
"""

import numpy as np

from strata.formats.contract import GROUP, WeightFormat
from tests.unit.formats.blocks import n_halves, random_blocks, set_half

LEAST = 2.0**-100
"""The least magnitude whose group keeps a scale."""
HALVES = (0x0001, 0x8001, 0x0000, 0x8000, 0x03FF)
"""Bits of binary16 scales: the least numbers, zeros, the largest subnormal one."""


def vanishing_rows(seed: int, n_rows: int, n: int) -> np.ndarray:
    """Return float32 [n_rows, n], kind by kind from the seed's on; from the seventh row on a kind comes again at other magnitudes."""
    place = np.arange(n)
    kinds = (
        np.zeros(n), np.where(place == n - GROUP - 3, -1.0, 0.0), np.resize([1.0, -0.75, 0.5], n) * LEAST,
        np.where(place < GROUP, np.resize([1.0, -0.5], n), -0.0), np.resize([1.0, -1.0], n), np.resize([1.0, -0.3], n) * 1e-38,
    )
    rows = [kinds[(seed + row) % len(kinds)] * 2.0 ** (row // len(kinds)) for row in range(n_rows)]
    return np.stack(rows).astype(np.float32)


def vanishing_weights(form: WeightFormat, seed: int, n_out: int, n_in: int, n_experts: int = 1) -> np.ndarray:
    """Return uint8 [...], ending at a multiple of 16 bytes: random matrices; every other output row has scales of HALVES, minimums too."""
    per_row = n_in // form.block_weights
    blocks = random_blocks(form, n_experts * n_out * per_row, seed)
    tiny = np.repeat(np.arange(n_experts * n_out) % 2 == 1, per_row)
    for field in range(n_halves(form)):
        own = blocks[tiny]
        set_half(form, own, field, np.resize(np.array(HALVES, np.uint16), len(own)))
        blocks[tiny] = own
    flat = blocks.reshape(-1)
    return np.concatenate((flat, np.zeros(-flat.size % 16, np.uint8)))
