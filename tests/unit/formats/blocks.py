"""Stored blocks for tests: random ones with finite scales, extreme ones, and their decoded parts as numpy arrays."""

from dataclasses import dataclass
from functools import cache

import numba
import numpy as np

from strata.formats.contract import GROUP, WeightFormat
from strata.formats.table import FORMATS
from strata.formats.unpack import row_unpacker

ALL = tuple(FORMATS.values())
KNOWN_TO_GGUF = tuple(form for form in ALL if form.name != "Q2_0")

HALF_FIELDS = {
    "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q3_K": (108,), "Q6_K": (208,), "IQ1_M": (),
}
"""Byte offsets of the fp16 fields of a block; (0,) for formats that are not listed.  IQ1_M scatters its four nibbles."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Decoded rows: q int8 [n, 32], d float32 [n], s int32 [n, 2], offset float32 [n] for n groups."""

    q: np.ndarray
    d: np.ndarray
    s: np.ndarray
    offset: np.ndarray

    def exact_values(self) -> np.ndarray:
        """Values in float64, [n * 32]: exact, since no term needs more than 53 bits."""
        scaled = self.q.astype(np.int64) * np.repeat(self.s, GROUP // 2, axis=1)
        return (self.d[:, None].astype(np.float64) * scaled + self.offset[:, None].astype(np.float64)).reshape(-1)


def set_half(form: WeightFormat, blocks: np.ndarray, field: int, bits: np.ndarray) -> None:
    """Write fp16 bit patterns, uint16 [n], into the `field`-th fp16 number of every block."""
    bits = np.broadcast_to(np.asarray(bits, np.uint16), len(blocks))
    if form.name == "IQ1_M":
        words = blocks[:, 48:56].copy().view("<u2")
        for k in range(4):
            words[:, k] = (words[:, k] & 0x0FFF) | ((bits >> np.uint16(4 * k)) & 0xF) << 12
        blocks[:, 48:56] = words.view(np.uint8)
    else:
        at = HALF_FIELDS.get(form.name, (0,))[field]
        blocks[:, at : at + 2] = bits[:, None].copy().view(np.uint8)


def n_halves(form: WeightFormat) -> int:
    return 1 if form.name == "IQ1_M" else len(HALF_FIELDS.get(form.name, (0,)))


def random_blocks(form: WeightFormat, n: int, seed: int) -> np.ndarray:
    """Return uint8 [n, block_bytes]: all byte patterns, except that fp16 numbers are finite (of any sign and size)."""
    generator = np.random.default_rng(seed)
    blocks = generator.integers(0, 256, (n, form.block_bytes), dtype=np.uint8)
    for field in range(n_halves(form)):
        bits = generator.integers(0, 1 << 16, n, dtype=np.uint16)
        infinite = (bits & 0x7C00) == 0x7C00
        set_half(form, blocks, field, np.where(infinite, bits & 0xBFFF, bits))
    return blocks


@cache
def _unpack_kernel(form: WeightFormat):
    unpack_row = row_unpacker(form)

    @numba.njit(nogil=True, error_model="numpy")
    def run(raw, at, n_groups, q, d, s, offset):
        unpack_row(raw, at, n_groups, q, d, s, offset)

    return run


def unpack_into(form: WeightFormat, raw: np.ndarray, at: int, n_groups: int, q, d, s, offset) -> None:
    """Call `unpack_row` from Python on flat arrays."""
    _unpack_kernel(form)(raw, at, n_groups, q, d, s, offset)


def decode(form: WeightFormat, blocks: np.ndarray) -> Parts:
    """Decode blocks uint8 [n, block_bytes] to their parts."""
    n_groups = len(blocks) * form.block_weights // GROUP
    q, s = np.empty(n_groups * 8, np.int32), np.empty(n_groups * 2, np.int32)
    d, offset = np.empty(n_groups, np.float32), np.empty(n_groups, np.float32)
    unpack_into(form, np.ascontiguousarray(blocks).reshape(-1), 0, n_groups, q, d, s, offset)
    return Parts(q.view(np.int8).reshape(-1, GROUP), d, s.reshape(-1, 2), offset)


def decode_q2_0(raw: np.ndarray) -> np.ndarray:
    """Decode Q2_0 from its description, weight by weight: float64 [n], for raw uint8 of whole 18-byte blocks.

    Weight 4i + k of a block's 64 has its code in bits 2k, 2k + 1 of byte i of the 16 after the fp16 scale d; its value
    is (code - 1) * d.
    """
    values = []
    for block in np.ascontiguousarray(raw).reshape(-1, 18):
        d = float(np.frombuffer(block[:2].tobytes(), "<f2")[0])
        for weight in range(64):
            byte, k = int(block[2 + weight // 4]), weight % 4
            values.append(((byte // 4**k) % 4 - 1) * d)
    return np.array(values)
