"""The codebooks of the i-quants, as word tables.

A grid maps an index to 8 or 4 magnitudes; a sign pattern tells which of 8 weights are negative.  Both come from the
gguf library when a format is built, nothing is copied.  Does not know: block layouts.
"""

import numpy as np


def grid_words(name: str) -> np.ndarray:
    """Return the grid of gguf's class `name` as uint32 words of four int8: [entries * values per entry / 4].

    Word k of an entry with 8 values (k = 0, 1) has index 2 * entry + k; with 4 values the index is the entry.
    """
    import gguf.quants

    quant = getattr(gguf.quants, name)
    quant.init_grid()
    return np.ascontiguousarray(quant.grid.reshape(-1).astype(np.int8)).view("<u4")


def sign_words() -> np.ndarray:
    """Return uint32 [256]: entry 2 * code + k has the low bit of byte i set where weight 4k + i is negative.

    The seven-bit code gives the signs of 7 weights; the eighth makes the number of negative ones even.
    """
    from gguf.quants import IQ2_XXS

    patterns = np.frombuffer(IQ2_XXS.ksigns, np.uint8)
    return np.unpackbits(patterns[:, None], axis=1, bitorder="little").reshape(-1).view("<u4")
