"""A third executor: the seam as plain Python over numpy scalars, one operation at a time, nothing compiled."""

from types import SimpleNamespace

import numpy as np


def _load(n_bytes):
    def load(raw, at):
        return np.uint32(int.from_bytes(raw[at : at + n_bytes].tobytes(), "little"))

    return load


def _table(array):
    return lambda i: array[int(i)]


PLAIN = SimpleNamespace(
    jit=lambda function: function,
    mul=lambda a, b: np.float32(a) * np.float32(b),
    half=lambda bits: np.float32(np.uint16(bits).view(np.float16)),
    load_u8=_load(1),
    load_u16=_load(2),
    load_u32=_load(4),
    table=_table,
)
