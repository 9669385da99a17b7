"""How many blocks a tiled product takes, and how many output tiles each computes in turn.  Nothing of it changes a bit.

Does not know: matrices, launches.
"""

from strata.cuda.card.launch import Shape
from strata.cuda.packed.staging import staging_of
from strata.cuda.packed.tiles import Tile, layout_of
from strata.formats.table import FORMATS
from strata.numerics.orders import EIGHT

BLOCKS_PER_UNIT = 5
"""Blocks that a multiprocessor should have before blocks take several output tiles in turn."""


def turns_of(type_id: int, tile: Tile, n_groups: int, n_out: int, n_row_tiles: int, n_units: int) -> int:
    """Return how many output tiles a block computes in turn: more where there are blocks enough, and stages enough to copy ahead.

    Blocks of the same rows have as equal numbers of tiles as can be.
    """
    per_stage = EIGHT * staging_of(FORMATS[type_id], tile.units).units
    if -(-n_groups // per_stage) < tile.stages - 1:
        return 1
    n_tiles = -(-n_out // tile.n_outputs)
    most = max(1, min(tile.turns, n_tiles * n_row_tiles // (BLOCKS_PER_UNIT * n_units)))
    n_blocks = -(-n_tiles // most)
    return -(-n_tiles // n_blocks)


def shape_of(type_id: int, tile: Tile, n_out: int, turns: int, n_row_tiles: int) -> Shape:
    """Return the shape of a launch of n_row_tiles tiles of rows (or the most there can be) by all outputs."""
    return Shape((-(-n_out // (tile.n_outputs * turns)), n_row_tiles), tile.n_threads, layout_of(type_id, tile).shared_bytes)
