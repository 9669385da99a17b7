"""The geometry of `read_mix.py`, and the way of its weights: rows of `up`, read where they are or through shared memory.

There value v of a group has its row of stream c at place c * GROUP + v.  A warp copies the rows of its own values, which lie one behind the
other in each stream: its threads are dealt to the streams, so that every copy takes something of all of them.

Does not know: what meets the weights.
"""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
from numba import cuda
from numba.cuda import types

from strata.cuda.floats import float_lanes
from strata.cuda.floats.float_short_rows import WIDEN
from strata.cuda.machine.addresses import copy_series, global_address, shared_address
from strata.cuda.machine.seam import Target, copies, jit

WARPS, GROUP = 16, 32
VALUES_PER_WARP = GROUP // WARPS
ROWS = 16
"""Rows of a block: one warp codes one of them."""
MOST_TOGETHER = 16
"""Sums up to which a warp's values meet in one tree: more would not stay in registers."""


@dataclass(frozen=True, slots=True)
class ReadShape:
    """Geometry and variant: `rows` meet the weights at once, which go through shared memory where `staged`."""

    hidden: int
    n_streams: int
    rank: int
    type_name: str
    rows: int
    staged: bool

    @property
    def share(self) -> np.float32:
        """One stream's: the number of streams is a power of two, so that a product with it has the bits of the quotient."""
        return np.float32(1 / self.n_streams)

    @property
    def values(self) -> int:
        """Values of a warp whose sums meet at once."""
        return VALUES_PER_WARP if VALUES_PER_WARP * self.n_streams * self.rows <= MOST_TOGETHER else 1

    @property
    def n_sums(self) -> int:
        return self.values * self.n_streams * self.rows

    @property
    def per_sum(self) -> int:
        """Threads that end with the same sum."""
        return 32 // self.n_sums

    @property
    def n_elements(self) -> int:
        """Elements of a product per thread."""
        return (self.rank + 31) // 32

    @property
    def row_bytes(self) -> int:
        return self.rank * WIDEN[self.type_name][1]

    @property
    def gated_at(self) -> int:
        """Bytes of weights in shared memory; the gated rows follow, then the mix."""
        return GROUP * self.n_streams * self.row_bytes if self.staged else 0

    @property
    def mixes_at(self) -> int:
        return self.gated_at + 4 * self.rows * self.rank

    @property
    def shared_bytes(self) -> int:
        return self.mixes_at + 4 * ROWS * GROUP


def staged_weights(shape: ReadShape, target: Target) -> SimpleNamespace:
    """Build `fetch(up, d, own, thread)`, which sends a warp's weights on their way, `wait()`, and `widened(up, d, own, c, thread, to)`.

    `widened` gives a thread's elements of the row of value d in stream c; own is d's number in the block.
    """
    hidden, n_streams, rank, row_bytes, n_elements = shape.hidden, shape.n_streams, shape.rank, shape.row_bytes, shape.n_elements
    piece_bytes, per_stream = 16 if row_bytes % 16 == 0 else 4, 32 // n_streams
    own_bytes, step, move = VALUES_PER_WARP * row_bytes, per_stream * piece_bytes, copies(target, 0)
    copy_rows, commit = copy_series(piece_bytes, -(-own_bytes // step), step, step, step, target, once=piece_bytes == 16), move.commit
    value, n_bytes = WIDEN[shape.type_name]

    @jit
    def fetch(up, d, own, thread):
        c, part = thread // per_stream, piece_bytes * (thread % per_stream)
        to = shared_address(cuda.shared.array(0, types.uint8)) + ((c * GROUP + own) * row_bytes + part)
        source = global_address(up) + ((np.int64(c) * hidden + d) * row_bytes + part)
        copy_rows(to, source, np.int32(own_bytes - part))
        commit()

    @jit
    def widened(up, d, own, c, thread, to):
        at = shared_address(cuda.shared.array(0, types.uint8)) + ((c * GROUP + own) * row_bytes + n_bytes * thread)
        for k in range(n_elements):
            if 32 * k + 31 < rank or 32 * k + thread < rank:
                to[c * n_elements + k] = value(at + 32 * k * n_bytes)

    return SimpleNamespace(fetch=fetch, wait=move.wait, widened=widened)


def plain_weights(shape: ReadShape) -> SimpleNamespace:
    """Build the same for weights that are read where they are."""
    hidden, rank, n_elements = shape.hidden, shape.rank, shape.n_elements
    value, n_bytes = float_lanes.WIDEN[shape.type_name][0], WIDEN[shape.type_name][1]

    @jit
    def fetch(up, d, own, thread):
        return

    @jit
    def wait():
        return

    @jit
    def widened(up, d, own, c, thread, to):
        at = (np.int64(c * hidden + d) * rank + thread) * n_bytes
        for k in range(n_elements):
            if 32 * k + 31 < rank or 32 * k + thread < rank:
                to[c * n_elements + k] = value(up, at + 32 * k * n_bytes)

    return SimpleNamespace(fetch=fetch, wait=wait, widened=widened)
