"""Words that the blocks of a launch hand to its last block, each of which is its own signal.

A word is EMPTY until it is posted; the last block reads until it is not, and empties it again for the next launch.  So one value
takes one way to the second-level cache and one back, where a counter behind a fence takes two more.  Blocks start in the order of
their numbers, so no block that has not started needs the place of the one that waits; should the words never come, it ends the
launch with the driver's error.

    post(words, i, value)    words int32, value float32; a NaN loses its bits
    read_posted(words, i) -> int32; read_past(values, i) -> float32, of any float32 array: past the first-level cache too
    take_back(words, i)      empties a word
    give_up(n_reads)         ends the launch behind MOST_READS reads

Does not know: what the words mean.
"""

import numpy as np

from strata.cuda.machine.seam import SIMULATED, bits, from_bits, jit

EMPTY, QUIET = np.int32(-1), np.int32(0x7FC00000)
"""What no posted word is, and what NaN is posted as."""
MOST_READS = 1 << 22
"""Reads of a row, each a way to the second-level cache and back: some seconds."""

if SIMULATED:

    def _write(words, i, value):
        words[i] = value

    def read_posted(words, i):
        return np.int32(words[i])

    def read_past(values, i):
        return np.float32(values[i])

    def _stop():
        raise RuntimeError("words of a launch were not posted")

else:
    from numba.cuda import types
    from numba.cuda.extending import intrinsic

    from strata.cuda.machine.intrinsics import _flag, barrier_like

    @intrinsic
    def _write(typing_context, words, i, value):
        return types.void(words, types.int64, types.int32), _flag("st.relaxed.gpu.global.u32 [$0], $1;", "l,r,~{memory}", True)

    @intrinsic
    def read_posted(typing_context, words, i):
        return types.int32(words, types.int64), _flag("ld.relaxed.gpu.global.u32 $0, [$1];", "=r,l,~{memory}", False)

    @jit
    def read_past(values, i):
        return from_bits(read_posted(values, i))

    _stop = barrier_like("trap;")


@jit
def post(words, i, value):
    _write(words, i, bits(value) if value == value else QUIET)


@jit
def take_back(words, i):
    _write(words, i, EMPTY)


@jit
def give_up(n_reads):
    if n_reads > MOST_READS:
        _stop()
