"""Which tiling a quantised product takes on a card: by the rows of the window, the card, and for listed experts the weights' format.

Every tiling gives the same bits.  Whoever cuts experts' entries into tiles asks here for their heights, product by product: gate and up of an
expert may have other formats than its down.  A shared expert's products are dense ones.  Does not know: matrices, lists, launches.
"""

from strata.cuda.machine.seam import target_of
from strata.cuda.machine.shapes import shared_room
from strata.cuda.packed.tiles import ROOM, Tile
from strata.formats.table import FORMATS

LATER = (10, 0)
"""The compute capability from which kernels are compiled by another LLVM."""
WINDOW = Tile(bands=1, columns=1, sets=1, units=0, stages=4, min_blocks=6)
"""For windows of up to eight rows."""
CHUNK = Tile(bands=4, columns=8, sets=1, units=2, stages=2, min_blocks=1, side_by_side=4, turns=4)
"""For prompt chunks, where a block can have ROOM."""
CHUNK_IN_PAIRS = Tile(bands=4, columns=8, sets=1, units=2, stages=2, min_blocks=1, side_by_side=2, turns=8)
"""For the same in formats with offsets and sub-scales, whose products need more registers: two columns side by side."""
MIDDLE = Tile(bands=2, columns=8, sets=1, units=1, stages=3, min_blocks=1, side_by_side=4)
"""For prompt chunks on later cards than 7.5 with less shared memory."""
EXPERTS = Tile(bands=4, columns=8, sets=1, units=2, stages=2, min_blocks=1, side_by_side=1, turns=8)
"""For listed experts of prompt chunks, which have some forty rows: columns without rows are left out one by one."""
LOW = Tile(bands=4, columns=6, sets=1, units=2, stages=2, min_blocks=1, side_by_side=6, turns=8)
"""Six columns without a branch between them: for the same where a product is short, and for all chunks on cards of 10.0 and later with
ROOM, whose compiler (another LLVM) leaves loops of larger tiles as they are and sends their sums to memory."""
FEW_EXPERTS = Tile(bands=2, columns=8, sets=1, units=1, stages=2, min_blocks=2, side_by_side=2)
"""For listed experts on later cards than 7.5 with less shared memory."""
SNUG = Tile(bands=2, columns=8, sets=1, units=1, stages=2, min_blocks=2)
"""For prompt chunks and listed experts on cards before compute capability 8.0, with less shared memory."""

CHUNK_BY_FORMAT = {(9, 0): {name: CHUNK_IN_PAIRS for name in ("Q4_K", "Q5_K")}}
"""By compute capability, formats whose dense products take another tiling than CHUNK.

Measured on an H200 with Q4_K: 2 to 5 % quicker.  A product of Q5_K is the same instructions behind its words.
"""
EXPERTS_BY_FORMAT = {(9, 0): {name: LOW for name in ("Q2_0", "Q4_0", "Q5_0", "Q8_0", "IQ4_NL", "Q4_K", "Q5_K")}}
"""By compute capability, formats whose listed experts take another tiling than EXPERTS.

Measured on an H200 with 40 and 85 rows an expert: Q4_K 11 and 14 % quicker; Q4_0 1 % slower and 2 % quicker; Q2_0 with long rows 3 % slower and
4 % quicker, with short ones 1 and 4 % quicker.  Others have the arithmetic of one that was measured, so that a product of theirs is the same instructions, and only what is done
once for all columns differs: Q5_0, Q8_0 and IQ4_NL neither offsets nor sub-scales, Q5_K those of Q4_K.
"""


def chunk_tile(capability: tuple[int, int], type_id: int) -> Tile:
    """Return the tiling of a chunk's dense products in a format on a card."""
    if shared_room(capability) >= ROOM:
        return CHUNK_BY_FORMAT.get(capability, {}).get(FORMATS[type_id].name, CHUNK) if capability < LATER else LOW
    return MIDDLE if target_of(capability).async_copies else SNUG


def experts_tile(capability: tuple[int, int], type_id: int) -> Tile:
    """Return the tiling of a chunk's listed experts in a format on a card."""
    if shared_room(capability) >= ROOM:
        return EXPERTS_BY_FORMAT.get(capability, {}).get(FORMATS[type_id].name, EXPERTS) if capability < LATER else LOW
    return FEW_EXPERTS if target_of(capability).async_copies else SNUG


def expert_heights(capability: tuple[int, int]) -> tuple[int, ...]:
    """Return the rows of every tiling that listed experts take on a card, ascending."""
    return tuple(sorted({experts_tile(capability, type_id).n_rows for type_id in FORMATS}))
