"""The last groups of a row that ends inside an octet.

The octet is read where it lies, past the row's end, unless that would be past the tensor's end: then its bytes are copied
to a spare buffer.  Lanes past the row's end get d = offset = 0; their codes meet the zeros of a page, so that they add +0
to their lanes, which changes nothing: a lane is never -0, because it starts at +0 and a fused multiply-add whose exact
result is not zero rounds to no zero here (products of scales keep away from the smallest float32).
Does not know: what is stored.
"""

import numpy as np

from strata.cpu_pool.lane_memory import load_byte, store_byte
from strata.cpu_pool.lanes import choose, first_lanes, splat_float
from strata.cpu_pool.octets.contract import OctetReader, octet_bytes
from strata.formats.contract import GROUP, WeightFormat
from strata.numerics.cpu import jit

ZERO = np.float32(0.0)


def build_unpack_end(form: WeightFormat, reader: OctetReader):
    """Compile `unpack_end(at, n_bytes, end, spare)`: the octet that starts at `at` and has n_bytes before its row's end.

    end: the address behind the tensor; spare: the address of a buffer of `octet_bytes(form)`.
    """
    unpack, whole_bytes, block_bytes = reader.unpack, octet_bytes(form), form.block_bytes
    groups_per_block = form.block_weights // GROUP

    @jit
    def unpack_end(at, n_bytes, end, spare):
        if at + whole_bytes > end:
            for i in range(n_bytes):
                store_byte(spare + i, load_byte(at + i))
            at = spare
        words, d, s0, s1, offset = unpack(at)
        n_groups = n_bytes // block_bytes * groups_per_block
        are_there, nothing = first_lanes(np.int32(n_groups)), splat_float(ZERO)
        return words, choose(are_there, d, nothing), s0, s1, choose(are_there, offset, nothing)

    return unpack_end
