"""Which kernel multiplies a format's coded rows with vector instructions: by the length of the rows.

Does not know: the plain loops, which a process without byte products uses (`strata.host.products`).
"""

from strata.cpu_pool.row_products import row_body, row_grain, row_product
from strata.cpu_pool.short_row_products import shares_octets, short_row_body, short_row_grain, short_row_product


def vector_product(type_id: int, n_groups: int, instructions: str):
    """Return the kernel for rows of n_groups groups of a format; its arguments are described at `row_product`."""
    if shares_octets(type_id, n_groups):
        return short_row_product(type_id, instructions)
    return row_product(type_id, instructions)


def vector_body(type_id: int, n_groups: int, instructions: str):
    """Return (body, grain) of the same work for a fork of one's own: `row_products.row_body`, `row_products.row_grain`."""
    if shares_octets(type_id, n_groups):
        return short_row_body(type_id, instructions), short_row_grain
    return row_body(type_id, instructions), row_grain
