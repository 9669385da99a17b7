"""Weights and activations as the host's products take them.

`Matrix` wraps one tensor (a dense matrix, or a bank of experts' matrices) in its packed form, where the file has it or where a
copy lies; `Activations` holds rows of float32 values and codes them when a product first asks; `Entries` says which activation
row meets which expert.
A matrix of a float type uses float products in every mode.  Products are those of the CPU pool (`row_kernels`,
`float_row_products`) where they can be, and otherwise the plain loops beside this file, which say what is computed: equal
bits.  Does not know: layers, routers.
"""

from copy import copy
from functools import cache, cached_property

import numpy as np

from strata.cpu_pool.float_row_products import float_row_product
from strata.cpu_pool.instruction_sets import PLAIN, instruction_set
from strata.cpu_pool.lanes import N_LANES
from strata.cpu_pool.pages import buffer_words, encode_pages, pack_pages
from strata.cpu_pool.row_kernels import vector_product
from strata.errors import ModelFileError
from strata.formats.contract import GROUP
from strata.formats.table import by_name
from strata.host.coding import encode, round_to_halves
from strata.host.float_products import WIDEN, float_product
from strata.host.products import coded_product, wide_product
from strata.model.tensor import Tensor


class Activations:
    """Rows of float32 values [rows, n], coded on first use with one scale per |spans[row]| values.

    With `has_halves`, the scales of rows with a negative span are rounded to binary16.
    """

    __slots__ = ("values", "n_rows", "_control", "_spans", "_has_halves", "_coded", "_for_products")

    def __init__(self, values: np.ndarray, control: np.ndarray, spans: np.ndarray, has_halves: bool = False) -> None:
        self.values, self.n_rows, self._control, self._spans, self._has_halves = values, values.shape[0], control, spans, has_halves
        self._coded: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
        self._for_products: tuple[np.ndarray, ...] | None = None

    @property
    def coded(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(codes int8 [rows, n], scales float32 [rows, n/32], sums int32 [rows, n/32])."""
        if self._coded is None:
            rows, n = self.values.shape
            codes, scales = np.empty((rows, n), np.int8), np.empty((rows, n // GROUP), np.float32)
            sums = np.empty((rows, n // GROUP), np.int32)
            encode(self._control, self.values, np.abs(self._spans) if self._has_halves else self._spans, codes, scales, sums)
            if self._has_halves:
                round_to_halves(scales, self._spans < 0)
            self._coded = codes, scales, sums
        return self._coded

    @property
    def for_products(self) -> tuple[np.ndarray, ...]:
        """What this process's coded products take: pages, or the plain arrays.

        Pages are made from the plain codes where somebody has asked for those, who may have changed them.
        """
        if self._for_products is None:
            self._for_products = self.coded if instruction_set() == PLAIN else (self._pages(),)
        return self._for_products

    def _pages(self) -> np.ndarray:
        rows, n = self.values.shape
        pages = np.empty(buffer_words(rows, n // GROUP), np.int32)
        if self._coded is None and not self._has_halves:
            encode_pages(self._control, self.values, self._spans, pages)
        else:
            pack_pages(*self.coded[:2], pages)
        return pages


class Entries:
    """Which rows meet which expert: experts int32 [n], starts int32 [n+1], rows int32 [entries].

    The i-th expert's entries are starts[i] .. starts[i+1]-1; entries before the first or behind the last are other matrices'.
    """

    __slots__ = ("experts", "starts", "rows", "n_entries")

    def __init__(self, experts: np.ndarray, starts: np.ndarray, rows: np.ndarray) -> None:
        self.experts, self.starts, self.rows, self.n_entries = experts, starts, rows, rows.shape[0]


@cache
def all_rows(n_rows: int) -> Entries:
    """Return the entries of a dense matrix: one expert, every row."""
    return Entries(np.zeros(1, np.int32), np.array([0, n_rows], np.int32), np.arange(n_rows, dtype=np.int32))


class Matrix:
    """One packed weight: [n_out, n_in], or a bank [experts, n_out, n_in]."""

    def __init__(self, tensor: Tensor) -> None:
        self.name, self.type_name = tensor.name, tensor.type_name
        shape = tensor.shape if len(tensor.shape) > 1 else (1, *tensor.shape)
        self.n_out, self.n_in = shape[-2], shape[-1]
        self.is_float = tensor.type_name in WIDEN
        self.nbytes = tensor.raw.size
        if self.is_float:
            flat = tensor.as_float32() if tensor.type_name == "F32" else tensor.as_uint16()
            self.weights = flat.reshape(-1, self.n_in)
            return
        self.type_id = by_name(tensor.type_name).type_id
        self.raw, self.row_bytes = tensor.raw, tensor.row_bytes
        self.expert_bytes = self.row_bytes * self.n_out
        self.place = self.raw, self.expert_bytes, self.row_bytes, self.n_in // GROUP

    def over(self, raw: np.ndarray, expert_bytes: int) -> "Matrix":
        """Return this bank where copies of its experts lie: number e from byte e * expert_bytes of raw uint8 on."""
        if self.is_float:
            raise _float_bank(self)
        twin, read_only = copy(self), raw.view()
        read_only.flags.writeable = False  # as the file's mapping is: one compiled kernel for both
        twin.raw, twin.place = read_only, (read_only, expert_bytes, *self.place[2:])
        return twin

    def blob(self, expert: int) -> np.ndarray:
        """Return one expert's packed bytes, uint8."""
        return self.raw.reshape(-1)[expert * self.expert_bytes : (expert + 1) * self.expert_bytes]

    def times(
        self, x: Activations, coded: bool, control: np.ndarray, entries: Entries | None = None, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Return float32 [entries, n_out]: the product of each entry's row with its expert's matrix, written to `out` if given."""
        if self.is_float:
            return self._float_times(x.values, control, entries)
        chosen = entries or all_rows(x.n_rows)
        if out is None:
            out = np.empty((chosen.n_entries, self.n_out), np.float32)
        if coded:
            self._coded_product(control, *self.place, chosen.experts, chosen.starts, chosen.rows, *x.for_products, out)
        else:
            wide_product(self.type_id)(control, *self.place, chosen.experts, chosen.starts, chosen.rows, x.values, out)
        return out

    def _float_times(self, x: np.ndarray, control: np.ndarray, entries: Entries | None) -> np.ndarray:
        if entries is not None:
            raise _float_bank(self)
        out = np.empty((x.shape[0], self.n_out), np.float32)
        self._float_product(control, self.weights, x, out)
        return out

    @cached_property
    def _coded_product(self):
        instructions = instruction_set()
        if instructions == PLAIN:
            return coded_product(self.type_id)
        return vector_product(self.type_id, self.n_in // GROUP, instructions)

    @cached_property
    def _float_product(self):
        return float_row_product(self.type_name) if self.n_in % N_LANES == 0 else float_product(self.type_name)


def _float_bank(matrix: Matrix) -> ModelFileError:
    return ModelFileError(f"{matrix.name} is {matrix.type_name}", "expert banks of float types are not read", "quantise it")
