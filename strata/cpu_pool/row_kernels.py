"""Which kernel multiplies a format's coded rows with vector instructions: by the length of the rows.

Does not know: the plain loops, which a process without byte products uses (`strata.host.products`).
"""

from strata.cpu_pool.row_products import expert_rows, row_product, row_scratch_bytes
from strata.cpu_pool.short_row_products import expert_short_rows, shares_octets, short_row_product, short_row_scratch_bytes


def vector_product(type_id: int, n_groups: int, instructions: str):
    """Return the kernel for rows of n_groups groups of a format; its arguments are described at `row_product`."""
    if shares_octets(type_id, n_groups):
        return short_row_product(type_id, instructions)
    return row_product(type_id, instructions)


def vector_rows(type_id: int, n_groups: int, instructions: str):
    """Return (rows, scratch bytes) of the same work for one expert, in a fork of one's own: see `row_products.expert_rows`."""
    if shares_octets(type_id, n_groups):
        return expert_short_rows(type_id, instructions), short_row_scratch_bytes
    return expert_rows(type_id, instructions), row_scratch_bytes
