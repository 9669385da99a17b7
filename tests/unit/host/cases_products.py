"""Row operations: codes, products with every weight format, products with float weights."""

from functools import partial

import numpy as np

from strata.formats.table import FORMATS
from strata.host.coding import encode
from strata.host.float_products import float_product
from strata.host.matrix import all_rows
from strata.host.products import coded_product, wide_product
from tests.oracle import operations as oracle
from tests.unit.formats.blocks import n_halves, random_blocks, set_half
from tests.unit.host.operation import RowOperation
from tests.unit.numerics.stranger import products
from tests.unit.numerics.stranger.blocks import has_offset
from tests.unit.numerics.stranger.sums import codes

N_IN, N_OUT = 512, 5
WIDE_IN = 600
"""Not a multiple of 256: the last lanes have one term less."""


def make_rows(n_in: int, generator, n: int) -> dict:
    return {"x": generator.standard_normal((n, n_in)).astype(np.float32)}


def matrix_rows(form, n_out: int = N_OUT, n_in: int = N_IN) -> np.ndarray:
    """Bytes uint8 [n_out, row bytes] of random weights with scales near 0.01, read-only as in a mapped file."""
    blocks = random_blocks(form, n_out * n_in // form.block_weights, seed=form.type_id)
    generator = np.random.default_rng(form.type_id)
    for number in range(n_halves(form)):
        half = (generator.standard_normal(len(blocks)) * 0.01).astype(np.float16)
        set_half(form, blocks, number, half.view(np.uint16))
    rows = blocks.reshape(n_out, -1)
    rows.flags.writeable = False
    return rows


def encode_rows(control, x, span: int = 32):
    rows, n = x.shape
    out = np.empty((rows, n), np.int8), np.empty((rows, n // 32), np.float32), np.empty((rows, n // 32), np.int32)
    encode(control, x, np.full(rows, span, np.int32), *out)
    return out


def place(rows, n_rows: int) -> tuple:
    """The arguments of a product that say where a dense matrix lies and which rows meet it."""
    entries = all_rows(n_rows)
    return rows.reshape(-1), rows.size, rows.shape[1], N_IN // 32, entries.experts, entries.starts, entries.rows


def coded(form, control, x):
    rows, out = matrix_rows(form), np.empty((x.shape[0], N_OUT), np.float32)
    coded_product(form.type_id)(control, *place(rows, x.shape[0]), *encode_rows(control, x), out)
    return (out,)


def wide(form, control, x):
    rows, out = matrix_rows(form), np.empty((x.shape[0], N_OUT), np.float32)
    wide_product(form.type_id)(control, *place(rows, x.shape[0]), x, out)
    return (out,)


def exact_weights(form) -> np.ndarray:
    """float64 [n_out, n_in], no rounding in them."""
    parts = products.decode_rows(form.name, matrix_rows(form))
    values = parts.d[:, None].astype(np.float64) * (parts.q * np.repeat(parts.s, 16, axis=1)) + parts.offset[:, None]
    return values.reshape(N_OUT, N_IN)


def coded_oracle(form, x):
    """Exact products of the values that the codes stand for."""
    q, scales, _ = codes(x)
    return (oracle.linear(q * np.repeat(scales, 32, axis=1).astype(np.float64), exact_weights(form)),)


def plain_coded(form, x, **order):
    return (products.coded(form.name, matrix_rows(form), codes(x), **order),)


def quantised(form) -> list[RowOperation]:
    four_lanes = {"four lanes": partial(plain_coded, form, n_lanes=4)}
    return [
        RowOperation(
            f"coded product {form.name}", partial(make_rows, N_IN), partial(coded, form), partial(plain_coded, form),
            partial(coded_oracle, form), wrong=four_lanes,
        ),
        RowOperation(
            f"wide product {form.name}", partial(make_rows, N_IN), partial(wide, form),
            lambda x: (products.wide(form.name, matrix_rows(form), x),),
            lambda x: (oracle.linear(x, exact_weights(form)),), wrong=four_lanes,
        ),
    ]


def float_bits(type_name: str) -> np.ndarray:
    values = np.random.default_rng(3).standard_normal((N_OUT, WIDE_IN)).astype(np.float32)
    if type_name == "F32":
        return values
    return values.astype(np.float16).view(np.uint16) if type_name == "F16" else (values.view(np.uint32) >> 16).astype(np.uint16)


def plain_floats(type_name: str, x, **order):
    weights = float_bits(type_name)
    return (products.floats(type_name, weights.view(np.uint32) if type_name == "F32" else weights, x, **order),)


def floating(type_name: str) -> RowOperation:
    def compute(control, x):
        out = np.empty((x.shape[0], N_OUT), np.float32)
        float_product(type_name)(control, float_bits(type_name), x, out)
        return (out,)

    def exact(x):
        bits = float_bits(type_name)
        return (oracle.linear(x, products.WIDENED[type_name](bits.view(np.uint32) if type_name == "F32" else bits)),)

    wrong = {"eight lanes": partial(plain_floats, type_name, n_lanes=8), "128 lanes": partial(plain_floats, type_name, n_lanes=128)}
    return RowOperation(f"float product {type_name}", partial(make_rows, WIDE_IN), compute, partial(plain_floats, type_name), exact, wrong=wrong)


def coding(span: int) -> RowOperation:
    return RowOperation(
        f"codes per {span}", partial(make_rows, 320), partial(encode_rows, span=span), lambda x: codes(x, span),
        wrong={"other span": lambda x: codes(x, 64)},
    )


OPERATIONS = (
    coding(32),
    coding(256),
    *(operation for form in FORMATS.values() for operation in quantised(form)),
    *map(floating, ("BF16", "F16", "F32")),
)
OFFSET_FORMATS = tuple(form for form in FORMATS.values() if has_offset(form.name))
