"""Weight rows, activation rows and both ways to multiply them, for the tests of row products."""

from dataclasses import dataclass

import numpy as np
import pytest

from strata.cpu_pool.instruction_sets import PLAIN, compiled_features, sets_for
from strata.cpu_pool.pages import LINE_BYTES, buffer_words, encode_pages, pack_pages
from strata.cpu_pool.row_kernels import vector_product
from strata.cpu_pool.row_products import row_product
from strata.formats.contract import GROUP, WeightFormat
from strata.formats.table import FORMATS
from strata.host.coding import encode
from strata.host.products import coded_product
from tests.unit.formats.blocks import n_halves, random_blocks, set_half

SETS = tuple(name for name in sets_for(compiled_features()) if name != PLAIN)
"""Instruction sets that this CPU can run, the best first."""
ENDS = (SETS[0], SETS[-1]) if len(SETS) > 1 else SETS
"""The best and the least of them: tried with every format (the least, in the default run, with those of EVERY_WAY)."""
OTHERS = ("vnni",) if "avx512" in SETS else SETS[1:-1]
"""Tried with some formats: those between, and where AVX-512 has VPDPBUSD on 256 bits, AVX-VNNI's, which is the same in another encoding."""

ALL = tuple(FORMATS.values())
EVERY_WAY = ("Q8_0", "Q5_1", "Q2_0", "Q6_K", "IQ4_XS", "IQ2_XS", "IQ3_S")
"""Formats that between them use every way of adding byte products, splitting scales and ending rows."""
GEOMETRIES = (32, 64, 96, 128, 256, 640, 2560)
ROW_COUNTS = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17)
FILL = np.float32(77.0)


def fits(form: WeightFormat, n_in: int) -> bool:
    return n_in % form.block_weights == 0


def formats_with_sets(forms: tuple[WeightFormat, ...]) -> list:
    """Parameters (format, instruction set): every format with both ends; each kernel takes seconds to compile."""
    return [
        pytest.param(form, name, id=f"{form.name}-{name}", marks=[] if name == SETS[0] or form.name in EVERY_WAY else [pytest.mark.slow])
        for form in forms for name in ENDS
    ]


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """A bank of experts' matrices: raw uint8 [experts * n_out * row_bytes]."""

    form: WeightFormat
    n_in: int
    n_out: int
    raw: np.ndarray

    @property
    def row_bytes(self) -> int:
        return self.n_in // self.form.block_weights * self.form.block_bytes

    @property
    def expert_bytes(self) -> int:
        return self.row_bytes * self.n_out


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """Which rows meet which expert."""

    experts: np.ndarray
    starts: np.ndarray
    entry_rows: np.ndarray


def random_weights(form: WeightFormat, n_in: int, n_out: int, n_experts: int = 1, seed: int = 1) -> Weights:
    """Random bytes with scales of ordinary size, so that sums differ in their last bits and do not overflow."""
    blocks = random_blocks(form, n_in // form.block_weights * n_out * n_experts, seed)
    generator = np.random.default_rng(seed)
    for field in range(n_halves(form)):
        set_half(form, blocks, field, (generator.standard_normal(len(blocks)) * 0.01).astype(np.float16).view(np.uint16))
    return Weights(form, n_in, n_out, blocks.reshape(-1))


def dense(n_rows: int) -> Work:
    """One expert that meets every row."""
    return Work(np.zeros(1, np.int32), np.array([0, n_rows], np.int32), np.arange(n_rows, dtype=np.int32))


def random_rows(n_rows: int, n_in: int, seed: int = 2) -> np.ndarray:
    """Rows whose groups have sizes far apart."""
    generator = np.random.default_rng(seed)
    sizes = 10.0 ** generator.uniform(-3, 3, (n_rows, n_in // GROUP))
    return (generator.standard_normal((n_rows, n_in)) * np.repeat(sizes, GROUP, axis=1)).astype(np.float32)


def plain_codes(control, x: np.ndarray, span: int = GROUP) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows, n = x.shape
    codes = np.empty((rows, n), np.int8), np.empty((rows, n // GROUP), np.float32), np.empty((rows, n // GROUP), np.int32)
    encode(control, x, np.full(rows, span, np.int32), *codes)
    return codes


def pages_of(control, x: np.ndarray, span: int = GROUP) -> np.ndarray:
    pages = np.empty(buffer_words(len(x), x.shape[1] // GROUP), np.int32)
    encode_pages(control, x, np.full(len(x), span, np.int32), pages)
    return pages


def records(pages: np.ndarray, n_rows: int, n_groups: int) -> np.ndarray:
    """The pages in a buffer: int32 [rows, pages, 12 vectors, 8 lanes]."""
    first = -pages.ctypes.data % LINE_BYTES // 4
    shape = (n_rows, -(-n_groups // 8), 12, 8)
    return pages[first : first + int(np.prod(shape))].reshape(shape)


def packed(codes, scales) -> np.ndarray:
    pages = np.empty(buffer_words(*scales.shape), np.int32)
    pack_pages(codes, scales, pages)
    return pages


def _multiply(kernel, control, weights: Weights, work: Work, coded) -> np.ndarray:
    n_entries, guard = len(work.entry_rows), 3
    whole = np.full((n_entries + 2 * guard, weights.n_out), FILL)
    out = whole[guard : guard + n_entries]
    kernel(
        control, weights.raw, weights.expert_bytes, weights.row_bytes, weights.n_in // GROUP,
        work.experts, work.starts, work.entry_rows, *coded, out,
    )
    assert (whole[:guard] == FILL).all() and (whole[-guard:] == FILL).all(), "written outside the results"
    return out


def plain_products(control, weights: Weights, work: Work, coded) -> np.ndarray:
    """The specification's plain loops; coded as `plain_codes` gives it."""
    return _multiply(coded_product(weights.form.type_id), control, weights, work, coded)


def vector_products(instructions: str, control, weights: Weights, work: Work, pages: np.ndarray) -> np.ndarray:
    kernel = vector_product(weights.form.type_id, weights.n_in // GROUP, instructions)
    return _multiply(kernel, control, weights, work, (pages,))


def long_row_products(instructions: str, control, weights: Weights, work: Work, pages: np.ndarray) -> np.ndarray:
    """The kernel for long rows, whatever the rows' length."""
    return _multiply(row_product(weights.form.type_id, instructions), control, weights, work, (pages,))


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bits, any NaN for any NaN."""
    both_nan = np.isnan(a) & np.isnan(b)
    return a.shape == b.shape and bool((both_nan | (a.view(np.int32) == b.view(np.int32))).all())
