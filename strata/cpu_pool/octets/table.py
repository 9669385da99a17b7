"""How every block format's octets are unpacked: one line per format.

Does not know: instruction sets, products.
"""

from functools import cache

from strata.cpu_pool.octets import grids, iq1_m, iq4_xs, q2_0, shared_bytes, single_groups
from strata.cpu_pool.octets.contract import OctetReader

_BUILDERS = {
    "Q4_0": single_groups.build_q4_0,
    "Q5_0": single_groups.build_q5_0,
    "Q5_1": single_groups.build_q5_1,
    "Q8_0": single_groups.build_q8_0,
    "Q2_0": q2_0.build,
    "Q3_K": shared_bytes.build_q3_k,
    "Q4_K": shared_bytes.build_q4_k,
    "Q5_K": shared_bytes.build_q5_k,
    "Q6_K": shared_bytes.build_q6_k,
    "IQ1_M": iq1_m.build,
    "IQ2_XXS": grids.build_iq2_xxs,
    "IQ2_XS": grids.build_iq2_xs,
    "IQ2_S": grids.build_iq2_s,
    "IQ3_XXS": grids.build_iq3_xxs,
    "IQ3_S": grids.build_iq3_s,
    "IQ4_NL": single_groups.build_iq4_nl,
    "IQ4_XS": iq4_xs.build,
}


@cache
def octet_reader(format_name: str) -> OctetReader:
    """Return the reader of a block format; every format of `strata.formats.table` has one."""
    return _BUILDERS[format_name]()
