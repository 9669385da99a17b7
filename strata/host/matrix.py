"""Weights and activations as the host's products take them.

`Matrix` wraps one tensor (a dense matrix, or a bank of experts' matrices) in its packed form; `Activations` holds rows of
float32 values and codes them when a product first asks; `Entries` says which activation row meets which expert.
A matrix of a float type uses float products in every mode.  Coded products are `strata.cpu_pool.row_products`' where this
process has byte products, and the plain loops of `strata.host.products` elsewhere: equal bits.  Does not know: layers,
routers.
"""

from functools import cache

import numpy as np

from strata.cpu_pool.instruction_sets import PLAIN, instruction_set
from strata.cpu_pool.pages import buffer_words, encode_pages, pack_pages
from strata.cpu_pool.row_products import row_product
from strata.errors import ModelFileError
from strata.formats.contract import GROUP
from strata.formats.table import by_name
from strata.host.coding import encode
from strata.host.float_products import WIDEN, float_product
from strata.host.products import coded_product, wide_product
from strata.model.tensor import Tensor


class Activations:
    """Rows of float32 values [rows, n], coded on first use with one scale per `spans[row]` values."""

    def __init__(self, values: np.ndarray, control: np.ndarray, spans: np.ndarray) -> None:
        self.values, self._control, self._spans = values, control, spans
        self._coded: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
        self._pages: np.ndarray | None = None

    def coded_for(self, instructions: str) -> tuple[np.ndarray, ...]:
        """Return what the coded products of an instruction set take: (pages,), or the plain arrays."""
        if instructions == PLAIN:
            return self.coded
        if self._pages is None:
            rows, n = self.values.shape
            self._pages = np.empty(buffer_words(rows, n // GROUP), np.int32)
            if self._coded is None:
                encode_pages(self._control, self.values, self._spans, self._pages)
            else:  # codes that were shown may have been changed by who saw them
                pack_pages(*self._coded[:2], self._pages)
        return (self._pages,)

    @property
    def coded(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(codes int8 [rows, n], scales float32 [rows, n/32], sums int32 [rows, n/32])."""
        if self._coded is None:
            rows, n = self.values.shape
            codes, scales = np.empty((rows, n), np.int8), np.empty((rows, n // GROUP), np.float32)
            sums = np.empty((rows, n // GROUP), np.int32)
            encode(self._control, self.values, self._spans, codes, scales, sums)
            self._coded = codes, scales, sums
        return self._coded


class Entries:
    """Which rows meet which expert: experts int32 [n], starts int32 [n+1], rows int32 [entries]."""

    __slots__ = ("experts", "starts", "rows")

    def __init__(self, experts: np.ndarray, starts: np.ndarray, rows: np.ndarray) -> None:
        self.experts, self.starts, self.rows = experts, starts, rows


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

    def times(self, x: Activations, coded: bool, control: np.ndarray, entries: Entries | None = None) -> np.ndarray:
        """Return float32 [entries, n_out]: the product of each entry's row with its expert's matrix."""
        if self.is_float:
            if entries is not None:
                raise ModelFileError(f"{self.name} is {self.type_name}", "expert banks of float types are not read", "quantise it")
            out = np.empty((x.values.shape[0], self.n_out), np.float32)
            float_product(self.type_name)(control, self.weights, x.values, out)
            return out
        chosen = entries or all_rows(x.values.shape[0])
        out = np.empty((chosen.rows.shape[0], self.n_out), np.float32)
        place = (control, self.raw, self.expert_bytes, self.row_bytes, self.n_in // GROUP, chosen.experts, chosen.starts, chosen.rows)
        if coded:
            instructions = instruction_set()
            product = coded_product(self.type_id) if instructions == PLAIN else row_product(self.type_id, instructions)
            product(*place, *x.coded_for(instructions), out)
        else:
            wide_product(self.type_id)(*place, x.values, out)
        return out
