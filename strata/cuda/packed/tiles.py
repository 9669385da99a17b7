"""Tilings of products with many activation rows: int8 tensor cores in the order of the contract.

A block computes a tile of output rows x activation rows.  Group g of 32 weights belongs to lane g mod 8, and each warp of a
block's sets computes one or two lanes alone: one tensor-core product per group gives the exact integers, and each output's
chain of fused multiply-adds runs in that warp's registers in ascending g.  At the end the lanes meet in the eight-lane tree.
So a row's bits are those of the dp4a kernel and of the host, whatever the tile, its neighbours or its size.
Does not know: how a stage is copied or computed (tile_parts.py), which tiling a product takes (tile_choice.py).
"""

from dataclasses import dataclass

from strata.cuda.packed.staging import staging_of
from strata.cuda.packed.tile_words import tile_reader_of
from strata.formats.table import FORMATS
from strata.numerics.orders import EIGHT

CODE_PADS = (16, 32)
"""Bytes between rows of codes in shared memory, read word by word or two words at once: eight (four) rows' words lie in different banks."""
MARK_PAD = 16
"""Bytes between rows of marks: every second row's words lie in different banks."""
COLUMNS_AT_ONCE = 4
"""Columns of eight rows whose lanes meet in shared memory at once, where there is no room for all."""
ROOM = 227 << 10
"""Shared memory of a block whose lanes meet behind the stages, as cards of compute capability 9.0 to 10.x have it."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A tiling: `sets` of warps, each with 16 * `bands` output rows, times 8 * `columns` activation rows.

    A set has eight warps with one lane each, where `bands` is 2 or 4, or four with two lanes (`bands` 1): a warp's 32 threads
    unpack the scales of 32 (row, lane) pairs, or of 64.  Sets share the activation rows.  `units` of 256 weights per stage (0: the
    format's own number), `stages` in flight, `min_blocks` a multiprocessor should hold.  `side_by_side` columns are computed without
    a branch between them: reads and products of one run while the floats of another are computed.  A block computes up to `turns`
    output tiles, one after the other; with more than one the lanes meet behind the stages, which are being filled for the next tile.
    """

    bands: int
    columns: int
    sets: int
    units: int
    stages: int
    min_blocks: int
    side_by_side: int = 1
    turns: int = 1

    @property
    def lanes_per_warp(self) -> int:
        return 2 if self.bands == 1 else 1

    @property
    def rows_per_thread(self) -> int:
        """Output rows of which a thread unpacks the scales."""
        return max(1, self.bands // 2)

    @property
    def row_copiers(self) -> int:
        """Threads that copy one activation row: a power of two."""
        return self.n_threads >> (self.n_rows - 1).bit_length()

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


@dataclass(frozen=True, slots=True)
class Layout:
    """Byte offsets inside a stage of shared memory, and the sizes of a stage and of a block's whole dynamic memory.

    A row's marks are the scales of the stage's groups, then, where they are used, the sums of its codes; rows are `mark_pitch` bytes apart.
    The barrier of bulk copies is the stage's last 16 bytes.  The lanes of `columns_at_once` columns meet at `meeting_at`.
    """

    pitch: int
    codes_at: int
    code_pitch: int
    marks_at: int
    mark_pitch: int
    barrier_at: int
    stage_bytes: int
    columns_at_once: int
    meeting_at: int
    shared_bytes: int


def layout_of(type_id: int, tile: Tile) -> Layout:
    """Return how a tile's stages lie in shared memory: weight rows, code rows, then marks [row]."""
    form = FORMATS[type_id]
    staging = staging_of(form, tile.units)
    code_pitch = 256 * staging.units + CODE_PADS[tile_reader_of(form).adjacent]
    codes_at = tile.n_outputs * staging.pitch
    marks_at = codes_at + tile.n_rows * code_pitch
    mark_pitch = (2 if form.has_offset else 1) * 4 * EIGHT * staging.units + MARK_PAD
    barrier_at = marks_at + tile.n_rows * mark_pitch
    stage_bytes = barrier_at + 16
    all_stages, few = tile.stages * stage_bytes, min(tile.columns, COLUMNS_AT_ONCE)
    if tile.turns == 1:
        return Layout(staging.pitch, codes_at, code_pitch, marks_at, mark_pitch, barrier_at, stage_bytes, few, 0, max(all_stages, _lanes_bytes(tile, few)))
    at_once = next(n for n in (tile.columns, few) if n == few or all_stages + _lanes_bytes(tile, n) <= ROOM)
    shared_bytes = all_stages + _lanes_bytes(tile, at_once)
    return Layout(staging.pitch, codes_at, code_pitch, marks_at, mark_pitch, barrier_at, stage_bytes, at_once, all_stages, shared_bytes)


def _lanes_bytes(tile: Tile, n_columns: int) -> int:
    """Return the shared memory in which the lanes of n_columns columns meet."""
    return 4 * EIGHT * 32 * tile.sets * n_columns * tile.bands * 4
