"""All products that a layer makes of one input, in as few launches as possible.

A decode window takes up to three quantised matrices of one block format together and, where one pass over the weights
serves all its rows, up to two float matrices beside them; float matrices are else taken two at a time.  Prompt chunks take
every matrix by itself.  A row's bits do not depend on the choice.  Does not know: layers, what the products mean.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.machine.shapes import shared_room
from strata.cuda.memory.placed import FloatMatrix
from strata.cuda.packed import dealing, joined_rows, products, rows, window_kernels
from strata.cuda.packed.products import Coded, Other, Packed
from strata.cuda.packed.tile_choice import WINDOW
from strata.cuda.packed.tile_kernels import joined_tiles
from strata.cuda.packed.tiles import layout_of
from strata.errors import DeviceError

MOST_BESIDE = 1024
"""Float outputs up to which more than rows.FEW_ROWS rows of them are computed beside quantised ones."""


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """One matrix and where its products go: out float32 [rows * n_out]."""

    matrix: Packed | FloatMatrix
    out: Any


def launch_projections(
    device: CudaDevice, asked: Iterable[Projection], values, coded: Coded | None, n_rows: int, programmatic: bool = False
) -> list[Launch]:
    """Every matrix times the same n_rows rows: float32 `values` [rows, n] and their codes."""
    packed, floats = [], []
    for one in asked:
        (floats if isinstance(one.matrix, FloatMatrix) else packed).append(one)
    if len({one.matrix.n_in for one in (*packed, *floats)}) > 1:
        raise DeviceError("products of one input", "the matrices have different numbers of columns", "launch them by themselves")
    launches, pairs = [], _alike(floats, dealing.MOST_FLOATS, lambda m: m.type_name)
    for parts in _alike(packed, dealing.MOST_MATRICES, lambda m: m.type_id):
        m = parts[0].matrix
        cut = window_kernels.cut_for(device, [one.matrix for one in parts], n_rows)
        if cut is not None:
            beside = pairs.pop(0) if pairs and _goes_beside(pairs[0], n_rows) else ()
            launches.append(_windowed(device, cut, parts, beside, values, coded, n_rows, programmatic))
        elif rows.takes(m.type_id, n_rows, m.n_groups, shared_room(device.card.capability)):
            beside = pairs.pop(0) if pairs and _goes_beside(pairs[0], n_rows) else ()
            launches.append(_joined(device, parts, beside, values, coded, n_rows, programmatic))
        elif n_rows <= products.WINDOW_ROWS:
            launches.append(_tiled(device, parts, coded, n_rows, programmatic))
        else:
            launches += [products.dense(device, one.matrix, coded, n_rows, one.out, programmatic) for one in parts]
    for pair in pairs:
        launches += _floats(device, pair, values, n_rows, programmatic)
    return launches


def _goes_beside(pair: list[Projection], n_rows: int) -> bool:
    """Whether float matrices go into a launch of quantised ones; with many rows many outputs have a quicker launch of their own."""
    return n_rows <= rows.FEW_ROWS or sum(one.matrix.n_out for one in pair) <= MOST_BESIDE


def _alike(parts: list[Projection], most: int, kind) -> list[list[Projection]]:
    """Return projections in groups of one kind of matrix, `most` at a time."""
    by_kind: dict = {}
    for one in parts:
        by_kind.setdefault(kind(one.matrix), []).append(one)
    return [same[begin : begin + most] for same in by_kind.values() for begin in range(0, len(same), most)]


def _floats(device: CudaDevice, pair, values, n_rows: int, programmatic: bool) -> list[Launch]:
    first, *others = pair

    def launch(one: Projection, other: Other | None) -> Launch:
        m = one.matrix
        return products.floats(device, m.type_name, m.raw, m.n_in, m.n_out, values, n_rows, one.out, programmatic, other)

    if others and products.takes_other(first.matrix.n_in, n_rows):
        m = others[0].matrix
        return [launch(first, Other(m.raw, m.n_out, others[0].out))]
    return [launch(one, None) for one in pair]


def _joined(device: CudaDevice, parts, beside, values, coded: Coded, n_rows: int, programmatic: bool) -> Launch:
    """One launch for up to three matrices of one block format and up to two float matrices."""
    if len(parts) == 1 and not beside:
        return products.dense(device, parts[0].matrix, coded, n_rows, parts[0].out, programmatic)
    m = parts[0].matrix
    raws, n_outs, outs = _filled(parts, dealing.MOST_MATRICES)
    weights, n_floats, float_outs = _filled(beside or parts, dealing.MOST_FLOATS)
    n_floats = n_floats if beside else [0] * dealing.MOST_FLOATS
    float_type = beside[0].matrix.type_name if beside else ""
    staged = bool(beside) and joined_rows.float_cut(float_type, m.n_in, n_rows)[0]
    pitch = joined_rows.float_pitch(float_type, m.n_in) if beside else 0
    turns = rows.turns_of(sum(n_outs))
    n_blocks = sum(rows.grid_of(n, 1, turns)[0] for n in n_outs) + sum(joined_rows.float_blocks(n) for n in n_floats)
    n_shared = joined_rows.block_bytes(m.type_id, n_rows, m.n_groups, float_type, m.n_in)
    arguments = (
        *raws, *_int32s(m.row_bytes, m.n_groups, *n_outs, turns), *products.activations(m, coded), *outs,
        *weights, *_int32s(m.n_in, *n_floats, pitch), values, *float_outs,
    )
    kernel = joined_rows.joined_rows(m.type_id, n_rows, float_type, staged, rows.known_of(n_rows, m.n_groups), device.target)
    return Launch(device, kernel, Shape((n_blocks, 1), rows.THREADS, n_shared), arguments, programmatic)


def _windowed(device: CudaDevice, cut, parts, beside, values, coded: Coded, n_rows: int, programmatic: bool) -> Launch:
    """The same on tensor cores, for windows of many rows."""
    matrices, floats = [one.matrix for one in parts], [one.matrix for one in beside]
    outs, float_outs = [one.out for one in parts], [one.out for one in beside]
    codes = products.activations(matrices[0], coded)
    return window_kernels.window_launch(device, cut, matrices, outs, codes, n_rows, programmatic, floats, float_outs, values)


def _tiled(device: CudaDevice, parts, coded: Coded, n_rows: int, programmatic: bool) -> Launch:
    """One launch of tensor-core tiles for up to three matrices of one block format."""
    if len(parts) == 1:
        return products.dense(device, parts[0].matrix, coded, n_rows, parts[0].out, programmatic)
    m = parts[0].matrix
    raws, n_outs, outs = _filled(parts, dealing.MOST_MATRICES)
    n_blocks = sum(-(-n // WINDOW.n_outputs) for n in n_outs)
    sizes = _int32s(m.row_bytes, m.n_groups, *n_outs, n_rows)
    shape = Shape((n_blocks, 1), WINDOW.n_threads, layout_of(m.type_id, WINDOW).shared_bytes)
    kernel = joined_tiles(m.type_id, WINDOW, device.target)
    return Launch(device, kernel, shape, (*raws, *sizes, *products.activations(m, coded), *outs), programmatic)


def _filled(parts, n: int) -> tuple[list, list, list]:
    """Return raw weights, outputs and results of n matrices; those that are not there have 0 outputs and the first's arrays."""
    missing = n - len(parts)
    raws, outs = ([f(one) for one in parts] + [f(parts[0])] * missing for f in (lambda one: one.matrix.raw, lambda one: one.out))
    return raws, [one.matrix.n_out for one in parts] + [0] * missing, outs


def _int32s(*values: int) -> tuple:
    return tuple(np.int32(value) for value in values)
