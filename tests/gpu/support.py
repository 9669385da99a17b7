"""What tests of the CUDA executor share: packed test weights, coded activations, the host's results, exact comparison.

Used on a card (tests/gpu) and in the simulator (tests/sim).  Does not know: which kernels there are.
"""

from dataclasses import dataclass

import numpy as np

from strata.formats.contract import WeightFormat
from strata.host.coding import encode
from strata.host.float_products import float_product
from strata.host.products import coded_product
from tests.unit.formats.blocks import random_blocks

ROW_COUNTS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257)
"""Row counts at which kernels elsewhere changed their order."""
GUARD = 64
CANARY = np.float32(-12345.0)


@dataclass(frozen=True, slots=True)
class HostCoded:
    """Coded rows on the host: codes int8 [rows, n], scales float32 and sums int32 [rows, n/32]."""

    codes: np.ndarray
    scales: np.ndarray
    sums: np.ndarray


def random_rows(seed: int, n_rows: int, n: int) -> np.ndarray:
    """Return float32 [n_rows, n] of mixed sizes; from three rows on, rows 1, 4, 7 ... hold an infinity, NaN or huge values."""
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((n_rows, n)) * np.exp2(generator.integers(-8, 8, (n_rows, 1)))
    x = x.astype(np.float32)
    for row in range(1, n_rows - 1, 3):
        x[row, (7 * row) % n] = (np.inf, np.nan, np.float32(3e38))[row // 3 % 3]
    return x


def packed_weights(form: WeightFormat, seed: int, n_out: int, n_in: int, n_experts: int = 1) -> np.ndarray:
    """Return uint8 [...]: random matrices, ending at a multiple of 16 bytes."""
    blocks = random_blocks(form, n_experts * n_out * n_in // form.block_weights, seed).reshape(-1)
    return np.concatenate((blocks, np.zeros(-blocks.size % 16, np.uint8)))


def coded_on_host(control: np.ndarray, x: np.ndarray, span: int = 32) -> HostCoded:
    """Code rows as the host does."""
    n_rows, n = x.shape
    coded = HostCoded(np.zeros((n_rows, n), np.int8), np.zeros((n_rows, n // 32), np.float32), np.zeros((n_rows, n // 32), np.int32))
    encode(control, x, np.full(n_rows, span, np.int32), coded.codes, coded.scales, coded.sums)
    return coded


def turned(codes: np.ndarray) -> np.ndarray:
    """Return codes with each 16 transposed as 4 x 4."""
    return np.ascontiguousarray(codes.reshape(*codes.shape[:-1], -1, 4, 4).swapaxes(-1, -2)).reshape(codes.shape)


def product_on_host(control, form, raw, n_out: int, coded: HostCoded, experts, starts, entry_rows) -> np.ndarray:
    """Return float32 [entries, n_out] by the host's kernel; int32 lists as there."""
    n_groups = coded.scales.shape[1]
    row_bytes = n_groups * 32 // form.block_weights * form.block_bytes
    out = np.empty((len(entry_rows), n_out), np.float32)
    lists = (np.asarray(v, np.int32) for v in (experts, starts, entry_rows))
    coded_product(form.type_id)(
        control, raw, n_out * row_bytes, row_bytes, n_groups, *lists, coded.codes, coded.scales, coded.sums, out
    )
    return out


def dense_on_host(control, form, raw, n_out: int, coded: HostCoded) -> np.ndarray:
    """Return float32 [rows, n_out] by the host's kernel."""
    n_rows = len(coded.codes)
    return product_on_host(control, form, raw, n_out, coded, [0], [0, n_rows], np.arange(n_rows))


def floats_on_host(control, type_name: str, weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return float32 [rows, n_out] by the host's kernel."""
    out = np.empty((len(x), len(weights)), np.float32)
    float_product(type_name)(control, weights, x, out)
    return out


def random_float_weights(type_name: str, seed: int, n_out: int, n_in: int) -> np.ndarray:
    """Return [n_out, n_in]: float32, or uint16 bits of BF16 or F16."""
    values = np.random.default_rng(seed).standard_normal((n_out, n_in)).astype(np.float32)
    if type_name == "F32":
        return values
    return (values.view(np.uint32) >> 16).astype(np.uint16) if type_name == "BF16" else values.astype(np.float16).view(np.uint16)


def padded_bytes(array: np.ndarray) -> np.ndarray:
    """Return an array's bytes, ending at a multiple of 16."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return np.concatenate((flat, np.zeros(-flat.size % 16, np.uint8)))


def folded_bits(values: np.ndarray) -> np.ndarray:
    """Return the int32 bits of float32 values with every NaN folded to one."""
    return np.where(np.isnan(values), np.int32(0x7FC00000), values.view(np.int32))


def assert_same_bits(what: str, got: np.ndarray, wanted: np.ndarray) -> None:
    """Fail with the first place and hexadecimal bits where two float32 arrays differ; NaN equals NaN."""
    assert got.shape == wanted.shape, f"{what}: shape {got.shape}, wanted {wanted.shape}"
    left, right = folded_bits(got), folded_bits(wanted)
    if np.array_equal(left, right):
        return
    places = np.argwhere(left != right)
    first = tuple(int(i) for i in places[0])
    raise AssertionError(
        f"{what}: {len(places)} of {got.size} differ, first at {first}: {left[first]:#010x} ({got[first]!r}), "
        f"wanted {right[first]:#010x} ({wanted[first]!r})"
    )


class GuardedOutput:
    """A float32 buffer on a device with canaries before and behind what a kernel may write."""

    def __init__(self, device, size: int) -> None:
        self.size = size
        self.whole = device.upload("guarded output", np.full(size + 2 * GUARD, CANARY, np.float32))
        self.inside = self.whole[GUARD : GUARD + size]

    def read(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return what was written; fails where a canary changed."""
        values = self.whole.copy_to_host()
        assert (values[:GUARD] == CANARY).all() and (values[GUARD + self.size :] == CANARY).all(), "written outside the buffer"
        return values[GUARD : GUARD + self.size].reshape(shape).copy()
