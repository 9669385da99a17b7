"""Products on a card as prepared launches: which kernel and tiling serves which number of rows.

A row's bits do not depend on the choice: all kernels compute the order of the contract.  Up to four rows take the dp4a kernels
(the weights' memory is the bound), up to eight tensor cores with a warp a lane, others the tensor-core tiles.  Nothing is tuned at run time.
Does not know: layers, routers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.floats import float_chunks, float_one_row, float_rows, float_short_rows, float_wide_rows
from strata.cuda.machine.shapes import shared_room
from strata.cuda.packed import coding, rows, window_kernels
from strata.cuda.packed.lists import TILE_PLAN_THREADS, plan_tiles
from strata.cuda.packed.readers import reader_of
from strata.cuda.packed.tile_choice import WINDOW, chunk_tile, expert_heights, experts_tile
from strata.cuda.packed.tile_grids import shape_of, turns_of
from strata.cuda.packed.tile_kernels import dense_tiles, expert_tiles
from strata.cuda.packed.tiles import Tile
from strata.errors import DeviceError
from strata.formats.contract import GROUP
from strata.formats.table import FORMATS

WINDOW_ROWS = 8


@dataclass(frozen=True, slots=True)
class Packed:
    """A quantised matrix (or a table of experts) on a card.

    raw uint8 [...], ending at a multiple of 16 bytes (CudaDevice.empty sees to it); expert x, output row n starts at byte
    x * expert_bytes + n * row_bytes.
    """

    raw: Any
    type_id: int
    n_out: int
    n_in: int
    expert_bytes: int = 0

    @property
    def row_bytes(self) -> int:
        form = FORMATS[self.type_id]
        return self.n_in // form.block_weights * form.block_bytes

    @property
    def n_groups(self) -> int:
        return self.n_in // GROUP


@dataclass(frozen=True, slots=True)
class Coded:
    """Coded activations, flat arrays for up to n_rows rows of n values: codes, turned int8; scales float32; sums int32."""

    codes: Any
    turned: Any
    scales: Any
    sums: Any
    n_rows: int
    n: int


@dataclass(frozen=True, slots=True)
class TilePlan:
    """Where tiles of up to `height` entries of one listed expert begin, in device memory (int32): n_tiles [1], listed, first [most]."""

    height: int
    n_tiles: Any
    listed: Any
    first: Any
    most: int


@dataclass(frozen=True, slots=True)
class Lists:
    """Entries grouped by expert, in device memory (int32), with the most that the arrays can hold.

    n_listed [1], experts [most_experts], starts [most_experts + 1], entry_rows [most_entries]; a plan for each height of tiles.
    """

    n_listed: Any
    experts: Any
    starts: Any
    entry_rows: Any
    plans: tuple[TilePlan, ...]
    most_experts: int
    most_entries: int

    def plan_of(self, tile: Tile) -> TilePlan:
        """Return the plan of a tiling's height."""
        for found in self.plans:
            if found.height == tile.n_rows:
                return found
        heights = ", ".join(str(found.height) for found in self.plans)
        raise DeviceError(f"experts in tiles of {tile.n_rows} rows", f"the lists were made for {heights}", "make lists for that height")


def make_coded(device: CudaDevice, purpose: str, n_rows: int, n: int) -> Coded:
    """Allocate coded activations for up to n_rows rows of n values."""
    return Coded(
        device.empty(purpose, n_rows * n, np.int8), device.empty(purpose, n_rows * n, np.int8),
        device.empty(purpose, n_rows * n // GROUP, np.float32), device.empty(purpose, n_rows * n // GROUP, np.int32), n_rows, n,
    )


def make_lists(device: CudaDevice, purpose: str, most_experts: int, most_entries: int, heights: Sequence[int] = ()) -> Lists:
    """Allocate lists, with plans for tiles of `heights` rows (none named: those of the card); n_listed and n_tiles start at 0."""
    def words(n):
        return device.zeros(purpose, n, np.int32)

    plans = []
    for height in heights or expert_heights(device.card.capability):
        most = min(most_experts, most_entries) + most_entries // height
        plans.append(TilePlan(height, words(1), words(most), words(most), most))
    return Lists(words(1), words(most_experts), words(most_experts + 1), words(most_entries), tuple(plans), most_experts, most_entries)


def _int32s(*values: int) -> tuple:
    return tuple(np.int32(value) for value in values)


def activations(weights: Packed, x: Coded) -> tuple:
    """Return codes (in the order that the format reads), scales and sums of coded rows for a matrix."""
    if weights.n_in != x.n:
        raise DeviceError(f"a product of {weights.n_in} columns", f"the activations have {x.n}", "give rows of that width")
    codes = x.turned if reader_of(FORMATS[weights.type_id]).turned else x.codes
    return codes, x.scales, x.sums


def code(device: CudaDevice, x, into: Coded, n_rows: int, spans=None, programmatic: bool = False) -> Launch:
    """Code x float32 [n_rows * n]; spans int32 [n_rows] gives values per scale, None the canonical 32."""
    n_groups = into.n // GROUP
    shape = Shape((coding.grid_of(n_rows, n_groups), 1), coding.THREADS)
    targets = (into.codes, into.turned, into.scales, into.sums)
    if spans is None:
        return Launch(device, coding.encode(device.target), shape, (x, np.int32(n_rows * n_groups), *targets), programmatic)
    arguments = (x, np.int32(n_groups), np.int32(n_rows * n_groups), spans, *targets)
    return Launch(device, coding.encode_spans(device.target), shape, arguments, programmatic)


def dense(device: CudaDevice, weights: Packed, x: Coded, n_rows: int, out, programmatic: bool = False) -> Launch:
    """out float32 [n_rows * n_out] = the first n_rows rows of x times the matrix."""
    cut = window_kernels.cut_for(device, (weights,), n_rows)
    if cut is not None:
        return window_kernels.window_launch(device, cut, (weights,), (out,), activations(weights, x), n_rows, programmatic)
    room = shared_room(device.card.capability)
    if rows.takes(weights.type_id, n_rows, weights.n_groups, room):
        turns = rows.turns_of(weights.n_out)
        grid = rows.grid_of(weights.n_out, 1, turns)
        stages = rows.stages_of(weights.type_id, n_rows, weights.n_groups, grid[0], room)
        n_shared = rows.shared_bytes(weights.type_id, n_rows, weights.n_groups, stages)
        kernel = rows.dense_rows(weights.type_id, n_rows, stages, rows.known_of(n_rows, weights.n_groups), device.target)
        sizes = _int32s(weights.row_bytes, weights.n_groups, weights.n_out, turns)
        return Launch(device, kernel, Shape(grid, rows.THREADS, n_shared), (weights.raw, *sizes, *activations(weights, x), out), programmatic)
    if n_rows > WINDOW_ROWS:
        return dense_tiled(device, weights, x, n_rows, out, chunk_tile(device.card.capability, weights.type_id), programmatic)
    return dense_tiled(device, weights, x, n_rows, out, WINDOW, programmatic)


def dense_tiled(
    device: CudaDevice, weights: Packed, x: Coded, n_rows: int, out, tile: Tile, programmatic: bool = False
) -> Launch:
    """As `dense`, on tensor cores with a given tiling."""
    n_row_tiles = -(-n_rows // tile.n_rows)
    turns = turns_of(weights.type_id, tile, weights.n_groups, weights.n_out, n_row_tiles, device.card.multiprocessors)
    shape = shape_of(weights.type_id, tile, weights.n_out, turns, n_row_tiles)
    sizes = _int32s(weights.row_bytes, weights.n_groups, weights.n_out, n_rows, turns)
    kernel = dense_tiles(weights.type_id, tile, device.target)
    return Launch(device, kernel, shape, (weights.raw, *sizes, *activations(weights, x), out), programmatic)


def listed(device: CudaDevice, weights: Packed, x: Coded, lists: Lists, out, programmatic: bool = False) -> Launch:
    """out float32 [entries * n_out]: every entry's product with its expert's matrix, for windows (few entries an expert)."""
    n_experts = min(lists.most_experts, lists.most_entries)
    turns = rows.turns_of(weights.n_out, n_experts)
    shape = Shape(
        rows.grid_of(weights.n_out, n_experts, turns), rows.THREADS, rows.shared_bytes(weights.type_id, 1, weights.n_groups)
    )
    sizes = (np.int64(weights.expert_bytes), *_int32s(weights.row_bytes, weights.n_groups, weights.n_out, turns))
    arguments = (weights.raw, *sizes, lists.n_listed, lists.experts, lists.starts, lists.entry_rows)
    kernel = rows.expert_rows(weights.type_id, device.target)
    return Launch(device, kernel, shape, (*arguments, *activations(weights, x), out), programmatic)


def _experts_tile(device: CudaDevice, weights: Packed) -> Tile:
    return experts_tile(device.card.capability, weights.type_id)


def plan(device: CudaDevice, lists: Lists, matrices: Sequence[Packed], programmatic: bool = False, tile: Tile | None = None) -> tuple[Launch, ...]:
    """Cut the listed experts' entries into tiles for `listed_tiled` of the matrices, with the same tiling: a launch for each height."""
    tiles = {chosen.n_rows: chosen for chosen in (tile or _experts_tile(device, matrix) for matrix in matrices)}
    launches = []
    for own in (lists.plan_of(chosen) for chosen in tiles.values()):
        arguments = (np.int32(own.height), lists.n_listed, lists.starts, own.n_tiles, own.listed, own.first)
        launches.append(Launch(device, plan_tiles(device.target), Shape((1, 1), TILE_PLAN_THREADS), arguments, programmatic))
    return tuple(launches)


def listed_tiled(
    device: CudaDevice, weights: Packed, x: Coded, lists: Lists, out, programmatic: bool = False, tile: Tile | None = None
) -> Launch:
    """As `listed`, on tensor cores, for prompt chunks; `plan` must have run on the lists, for this matrix and the same tiling."""
    tile = tile or _experts_tile(device, weights)
    own, n_row_tiles = lists.plan_of(tile), -(-lists.most_entries // tile.n_rows)
    turns = turns_of(weights.type_id, tile, weights.n_groups, weights.n_out, n_row_tiles, device.card.multiprocessors)
    shape = shape_of(weights.type_id, tile, weights.n_out, turns, own.most)
    arguments = (
        weights.raw, np.int64(weights.expert_bytes), *_int32s(weights.row_bytes, weights.n_groups, weights.n_out, turns), own.n_tiles,
        own.listed, own.first, lists.experts, lists.starts, lists.entry_rows,
    )
    kernel = expert_tiles(weights.type_id, tile, device.target)
    return Launch(device, kernel, shape, (*arguments, *activations(weights, x), out), programmatic)


@dataclass(frozen=True, slots=True)
class Other:
    """A second float matrix of the same type and input as a product's own: raw weights, outputs, and where its product goes."""

    weights: Any
    n_out: int
    out: Any


def takes_other(n_in: int, n_rows: int) -> bool:
    """Whether one launch of `floats` takes two matrices."""
    return n_rows <= float_rows.MOST_ROWS and not _is_short(n_in, n_rows)


def _is_short(n_in: int, n_rows: int) -> bool:
    return n_in < float_rows.LONG_ROW and n_rows <= float_short_rows.MOST_ROWS


def _few_rows(device, type_name, n_in, n_out, n_rows, weights, x, out, other: Other) -> tuple:
    """Return kernel, shape and arguments of a float product with few rows."""
    if _is_short(n_in, n_rows):
        per_block, pitch = float_short_rows.outputs_per_block(n_out), float_short_rows.row_pitch(type_name, n_in)
        shape = Shape((-(-n_out // per_block), 1), 32 * float_short_rows.N_WARPS, per_block * pitch)
        kernel = float_short_rows.short_rows(type_name, n_rows, device.target)
        return kernel, shape, (weights, *_int32s(n_in, n_out, per_block, pitch), x, out)
    room = shared_room(device.card.capability)
    if n_in >= float_rows.LONG_ROW and float_wide_rows.takes(type_name, n_in, n_rows, room):
        sides = float_wide_rows.sides_of(type_name, n_in, n_rows, room)
        n_blocks = sum(float_wide_rows.blocks_of(n, sides) for n in (n_out, other.n_out))
        shape = Shape((n_blocks, 1), float_wide_rows.THREADS, float_wide_rows.shared_bytes(type_name, n_in, n_rows, sides))
        kernel = float_wide_rows.wide_rows(type_name, n_rows, sides, device.target)
        return kernel, shape, (weights, other.weights, *_int32s(n_in, n_out, other.n_out), x, out, other.out)
    if n_rows == 1 and float_one_row.takes(type_name, n_in, room):
        n_blocks = sum(map(float_one_row.blocks_of, (n_out, other.n_out)))
        shape = Shape((n_blocks, 1), float_one_row.THREADS, float_one_row.shared_bytes(type_name, n_in))
        kernel = float_one_row.float_one_row(type_name, n_in, device.target)
        return kernel, shape, (weights, other.weights, *_int32s(n_out, other.n_out), x, out, other.out)
    cut = float_rows.shape_of(type_name, n_in, n_rows, room)
    kernel = float_rows.float_rows(type_name, n_rows, cut.n_outputs, cut.staged, device.target)
    n_blocks = -(-n_out // cut.n_outputs) + -(-other.n_out // cut.n_outputs)
    shape = Shape((n_blocks, 1), float_rows.THREADS_PER_OUTPUT * cut.n_outputs, cut.shared_bytes)
    return kernel, shape, (weights, other.weights, *_int32s(n_in, n_out, other.n_out, cut.pitch), x, out, other.out)


def floats(
    device: CudaDevice, type_name: str, weights, n_in: int, n_out: int, x, n_rows: int, out, programmatic: bool = False,
    other: Other | None = None, kind: str | None = None,
) -> Launch:
    """out float32 [n_rows * n_out] = x float32 [n_rows * n_in] times float weights (raw bytes uint8 [n_out * n_in * size]).

    With `other` (where `takes_other`) the same for a second matrix.  `kind` (None: the quickest) is one of float_chunks.KINDS
    for more rows than a window has.
    """
    if n_in % 4:
        raise DeviceError(f"a float product of {n_in} columns", "kernels read four at a time", "use a multiple of 4")
    if other is not None and not takes_other(n_in, n_rows):
        raise DeviceError(f"two float products of {n_in} columns, {n_rows} rows", "a launch takes one", "ask takes_other first")
    sizes, nothing = _int32s(n_in, n_out), Other(weights, 0, out)
    if n_rows <= float_rows.MOST_ROWS:
        return Launch(device, *_few_rows(device, type_name, n_in, n_out, n_rows, weights, x, out, other or nothing), programmatic)
    kind = kind or float_chunks.kind_of(device.card.capability, n_in, n_out, n_rows)
    kernel, shape = float_chunks.kernel_and_shape(device, kind, type_name, n_in, n_out, n_rows)
    return Launch(device, kernel, shape, (weights, *sizes, np.int32(n_rows), x, out), programmatic)
