"""Tilings of products with many activation rows: int8 tensor cores in the order of the contract.

A block computes a tile of output rows x activation rows.  Group g of 32 weights belongs to lane g mod 8, and each warp of a
block's sets computes one or two lanes alone: one tensor-core product per group gives the exact integers, and each output's
chain of fused multiply-adds runs in that warp's registers in ascending g.  At the end the lanes meet in the eight-lane tree.
So a row's bits are those of the dp4a kernel and of the host, whatever the tile, its neighbours or its size.
Does not know: how a stage is copied or computed (tile_parts.py).
"""

from dataclasses import dataclass

from strata.cuda.seam import Target
from strata.cuda.staging import staging_of
from strata.formats.table import FORMATS
from strata.numerics.orders import EIGHT

CODE_PAD = 16
COLUMNS_AT_ONCE = 4
"""Columns of eight rows whose lanes meet in shared memory at once."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A tiling: `sets` of warps, each with 16 * `bands` output rows, times 8 * `columns` activation rows.

    A set has eight warps with one lane each, where `bands` is 2 or 4, or four with two lanes (`bands` 1): a warp's 32 threads
    unpack the scales of 32 (row, lane) pairs, or of 64.  `units` of 256 weights per stage (0: the format's own number), `stages` in
    flight, `min_blocks` a multiprocessor should hold; with one, a thread has 255 registers.  `side_by_side` columns are computed
without a branch between them: reads and products of one run while the floats of another are computed.
    """

    bands: int
    columns: int
    sets: int
    units: int
    stages: int
    min_blocks: int
    side_by_side: int = 1

    @property
    def roomy(self) -> bool:
        """Whether a thread has registers to spare."""
        return self.min_blocks == 1

    @property
    def lanes_per_warp(self) -> int:
        return 2 if self.bands == 1 else 1

    @property
    def rows_per_thread(self) -> int:
        """Output rows of which a thread unpacks the scales."""
        return max(1, self.bands // 2)

    @property
    def copiers(self) -> int:
        """Threads that copy one weight row."""
        return self.n_threads // self.n_outputs

    @property
    def warps_per_set(self) -> int:
        return EIGHT // self.lanes_per_warp

    @property
    def n_outputs(self) -> int:
        return 16 * self.bands * self.sets

    @property
    def n_rows(self) -> int:
        return 8 * self.columns

    @property
    def n_threads(self) -> int:
        return 32 * self.warps_per_set * self.sets


WINDOW = Tile(bands=1, columns=1, sets=1, units=0, stages=4, min_blocks=6)
"""For windows of up to eight rows."""
CHUNK = Tile(bands=4, columns=8, sets=1, units=1, stages=3, min_blocks=1, side_by_side=2)
"""For prompt chunks, from compute capability 9.0 on."""
MIDDLE = Tile(bands=2, columns=8, sets=1, units=1, stages=3, min_blocks=1, side_by_side=4)
"""For prompt chunks on cards from 8.0 to 8.9, where CHUNK would spill."""
EXPERTS = Tile(bands=2, columns=8, sets=1, units=1, stages=2, min_blocks=2, side_by_side=2)
"""For listed experts of prompt chunks, which have some forty rows: columns without rows are left out two by two.  Their rows
are short, so that a second block should compute while one begins or ends."""
SNUG = Tile(bands=2, columns=8, sets=1, units=1, stages=2, min_blocks=2)
"""For both on cards before compute capability 8.0, with less shared memory."""


def chunk_tile(target: Target) -> Tile:
    """Return the tiling of a chunk's dense products on a card."""
    if target.dependent_launch:
        return CHUNK
    return MIDDLE if target.async_copies else SNUG


def experts_tile(target: Target) -> Tile:
    """Return the tiling of a chunk's listed experts on a card; its number of rows is that of EXPERTS."""
    return EXPERTS if target.async_copies else SNUG


@dataclass(frozen=True, slots=True)
class Layout:
    """Byte offsets inside a stage of shared memory, and the sizes of a stage and of a block's whole dynamic memory."""

    pitch: int
    codes_at: int
    code_pitch: int
    scales_at: int
    sums_at: int
    stage_bytes: int
    shared_bytes: int


def layout_of(type_id: int, tile: Tile) -> Layout:
    """Return how a tile's stages lie in shared memory: weight rows, code rows, then scales and sums [group][row]."""
    staging = staging_of(FORMATS[type_id], tile.units)
    code_pitch = 256 * staging.units + CODE_PAD
    codes_at = tile.n_outputs * staging.pitch
    scales_at = codes_at + tile.n_rows * code_pitch
    sums_at = scales_at + 4 * EIGHT * staging.units * tile.n_rows
    stage_bytes = sums_at + 4 * EIGHT * staging.units * tile.n_rows
    lanes_bytes = 4 * EIGHT * 32 * tile.sets * min(tile.columns, COLUMNS_AT_ONCE) * tile.bands * 4
    return Layout(staging.pitch, codes_at, code_pitch, scales_at, sums_at, stage_bytes, max(tile.stages * stage_bytes, lanes_bytes))
