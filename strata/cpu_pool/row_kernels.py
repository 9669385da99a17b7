"""Which kernel multiplies a format's coded rows with vector instructions: by the length of the rows.

Does not know: the plain loops, which a process without byte products uses (`strata.host.products`).
"""

from strata.cpu_pool.row_products import row_product
from strata.cpu_pool.short_row_products import shares_octets, short_row_product


def vector_product(type_id: int, n_groups: int, instructions: str):
    """Return the kernel for rows of n_groups groups of a format; its arguments are described at `row_product`."""
    if shares_octets(type_id, n_groups):
        return short_row_product(type_id, instructions)
    return row_product(type_id, instructions)
