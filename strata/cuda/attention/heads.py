"""What happens to attention's projections before cells are selected: one kernel for a whole layer.

A warp has one vector of one row: a query head (norm, rotary), a key head (norm, rotary, stored), a value head (stored), an
indexer query head (norm, rotary), or the raw indexer key (stored, and pooled where the row completes a block).  Orders as in
host/attention.py, host/rope.py and host/indexer.py: norms 32 lanes, value i in lane i mod 32; products of the rotation rounded
one by one.  A pooled key needs the raw keys of its block: those of the window's own rows are taken from the projection
through the same rounding as the stored ones, so that no second kernel is needed.

Flat shapes: projected [rows, heads, 2 D] (query, then gate); k, v [rows, kv_heads * D]; indexer_q [rows, Ni * Di]; raw [rows, Di];
table [positions, 2, rope / 2]; queries [rows, heads, D]; K/V cells as in cells.py; raw cells [slots, cells, Di]; pooled float32
[slots, blocks, Di].  Does not know: selection, projections.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.attention.cells import cell_store, saturated_half
from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.machine.seam import Target, add, div, exchange_float, fma, half, jit, kernel, launch_dependents, mul, sub, wait_for_dependency
from strata.cuda.machine.shapes import require
from strata.cuda.machine.warps import scale_from_sum, sum_row
from strata.cuda.memory.window_tables import WindowTables
from strata.model.config import ModelConfig

ZERO = np.float32(0.0)
WARPS = 8
THREADS = 32 * WARPS
LARGEST_HEAD = 512


@dataclass(frozen=True, slots=True)
class HeadShape:
    """Geometry of a layer's heads; `n_indexer` 0 means dense attention without an indexer."""

    n_q: int
    n_kv: int
    size: int
    n_indexer: int
    indexer_size: int
    n_pairs: int
    block: int
    kv: str
    raw: str


def normed_rotated(size: int, n_pairs: int):
    """Build `finish(x, at, norm, eps, table, position, thread, values)`: values = rotated(rms(x[at:at+size]) * norm).

    With n_pairs a multiple of 32 a pair's two values lie in one thread, below that in threads n_pairs apart.
    """
    per_thread, apart = size // 32, n_pairs // 32

    @jit
    def rotate(table, position, thread, values):
        base = np.int64(position) * 2 * n_pairs
        if apart > 0:
            for m in range(apart):
                i = base + 32 * m + thread
                a, b, cosine, sine = values[m], values[m + apart], table[i], table[i + n_pairs]
                values[m] = sub(mul(a, cosine), mul(b, sine))
                values[m + apart] = add(mul(b, cosine), mul(a, sine))
        else:
            mine, other = values[0], exchange_float(values[0], np.int32(n_pairs))
            i = base + thread % n_pairs
            cosine, sine = table[i], table[i + n_pairs]
            turned = sub(mul(mine, cosine), mul(other, sine)) if thread < n_pairs else add(mul(mine, cosine), mul(other, sine))
            values[0] = turned if thread < 2 * n_pairs else mine

    @jit
    def normalise(norm, eps, thread, values):
        total = ZERO
        for m in range(per_thread):
            total = fma(values[m], values[m], total)
        scale = scale_from_sum(sum_row(total), size, eps)
        for m in range(per_thread):
            values[m] = mul(mul(values[m], scale), norm[32 * m + thread])

    @jit
    def finish(x, at, norm, eps, table, position, thread, values):
        for m in range(per_thread):
            values[m] = x[at + 32 * m + thread]
        normalise(norm, eps, thread, values)
        rotate(table, position, thread, values)

    @jit
    def finish_values(norm, eps, table, position, thread, values):
        normalise(norm, eps, thread, values)
        rotate(table, position, thread, values)

    return finish, finish_values


def _pooling(shape: HeadShape):
    """Build `pool(...)`: the pooled key of the block that a row completes."""
    size, block, is_half = shape.indexer_size, shape.block, shape.raw == "f16"
    per_thread = size // 32
    _, finish_values = normed_rotated(size, shape.n_pairs)

    @jit
    def raw_value(raw, raw_cells, row, first_row, cell_vector, back, i):
        """Value i of the raw key `back` cells before the row's, as the cell holds it."""
        if row - back >= first_row:
            value = raw[np.int64(row - back) * size + i]
            return half(np.uint32(saturated_half(value))) if is_half else value
        stored = raw_cells[(cell_vector - back) * size + i]
        return half(np.uint32(stored)) if is_half else stored

    @jit
    def pool(raw, raw_cells, row, first_row, cell_vector, norm, eps, table, position, thread, values):
        for m in range(per_thread):
            i = 32 * m + thread
            total = raw_value(raw, raw_cells, row, first_row, cell_vector, block - 1, i)
            for back in range(block - 2, -1, -1):
                total = add(total, raw_value(raw, raw_cells, row, first_row, cell_vector, back, i))
            values[m] = div(total, np.float32(block))
        finish_values(norm, eps, table, position - block + 1, thread, values)

    return pool


@cache
def heads_kernel(shape: HeadShape, target: Target):
    """Return the kernel; grid (vectors / WARPS, rows).

    kernel(projected, k, v, indexer_q, raw, q_norm, k_norm, indexer_q_norm, indexer_k_norm, eps, table, slots, positions,
    segment_of_row, first, n_cells, n_blocks, queries, k_codes, k_scales, v_codes, v_scales, indexer_queries, raw_cells, pooled).
    """
    n_q, n_kv, size, n_indexer, indexer_size = shape.n_q, shape.n_kv, shape.size, shape.n_indexer, shape.indexer_size
    block = shape.block
    per_thread, per_thread_indexer = size // 32, max(indexer_size // 32, 1)
    finish, _ = normed_rotated(size, shape.n_pairs)
    store = cell_store(shape.kv, size)
    if n_indexer:
        finish_indexer, _ = normed_rotated(indexer_size, shape.n_pairs)
        store_raw, pool = cell_store(shape.raw, indexer_size), _pooling(shape)
    else:
        finish_indexer = store_raw = pool = None
    k_at, v_at, indexer_at = n_q, n_q + n_kv, n_q + 2 * n_kv
    n_vectors = indexer_at + n_indexer + (1 if n_indexer else 0)
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(THREADS)
    def run(
        projected, k, v, indexer_q, raw, q_norm, k_norm, indexer_q_norm, indexer_k_norm, eps, table, slots, positions,
        segment_of_row, first, n_cells, n_blocks, queries, k_codes, k_scales, v_codes, v_scales, indexer_queries, raw_cells, pooled,
    ):
        values = cuda.local.array(per_thread, np.float32)
        indexer_values = cuda.local.array(per_thread_indexer, np.float32)
        go_on()
        wait_before()
        thread, row = np.int32(cuda.threadIdx.x) & 31, np.int32(cuda.blockIdx.y)
        which = np.int32(cuda.blockIdx.x) * WARPS + (np.int32(cuda.threadIdx.x) >> 5)
        if which >= n_vectors:
            return
        position = positions[row]
        cell = np.int64(slots[row]) * n_cells + position
        if which < k_at:
            at = np.int64(row) * n_q + which
            finish(projected, at * 2 * size, q_norm, eps, table, position, thread, values)
            for m in range(per_thread):
                queries[at * size + 32 * m + thread] = values[m]
        elif which < v_at:
            head = which - k_at
            finish(k, (np.int64(row) * n_kv + head) * size, k_norm, eps, table, position, thread, values)
            store(values, thread, k_codes, k_scales, cell * n_kv + head)
        elif which < indexer_at:
            head = which - v_at
            for m in range(per_thread):
                values[m] = v[(np.int64(row) * n_kv + head) * size + 32 * m + thread]
            store(values, thread, v_codes, v_scales, cell * n_kv + head)
        elif n_indexer > 0:
            if which < indexer_at + n_indexer:
                at = (np.int64(row) * n_indexer + which - indexer_at) * indexer_size
                finish_indexer(indexer_q, at, indexer_q_norm, eps, table, position, thread, indexer_values)
                for m in range(per_thread_indexer):
                    indexer_queries[at + 32 * m + thread] = indexer_values[m]
            else:
                for m in range(per_thread_indexer):
                    indexer_values[m] = raw[np.int64(row) * indexer_size + 32 * m + thread]
                store_raw(indexer_values, thread, raw_cells, raw_cells, cell)
                if position % block == block - 1:
                    first_row = first[segment_of_row[row]]
                    pool(raw, raw_cells, row, first_row, cell, indexer_k_norm, eps, table, position, thread, indexer_values)
                    at = (np.int64(slots[row]) * n_blocks + position // block) * indexer_size
                    for m in range(per_thread_indexer):
                        pooled[at + 32 * m + thread] = indexer_values[m]

    return run


def head_shape(config: ModelConfig, kv: str, raw: str, has_queries: bool, has_indexer: bool) -> HeadShape:
    """Return the shape of a layer's heads; UsageError where the tiling does not take it."""
    n_pairs = config.rope_dims // 2
    fits = n_pairs % 32 == 0 or (n_pairs < 32 and 32 % (2 * n_pairs) == 0)
    require(fits, f"rope dimensions {config.rope_dims}", "pairs must lie in one thread or be exchanged in a warp")
    for size in (config.head_dim, config.indexer_dim):
        require(size % 32 == 0 and 2 * n_pairs <= size <= LARGEST_HEAD, f"head of {size}", f"heads of 32 n values up to {LARGEST_HEAD} fit")
    n_indexer = config.n_indexer_heads if has_indexer else 0
    return HeadShape(
        config.n_q_heads if has_queries else 0, config.n_kv_heads, config.head_dim, n_indexer, config.indexer_dim, n_pairs, config.indexer_block, kv, raw
    )


@dataclass(frozen=True, slots=True, eq=False)
class AttentionCells:
    """Device arrays of a layer's cells; shapes in the module's docstring, `n_cells` and `n_blocks` per slot."""

    n_cells: int
    n_blocks: int
    k_codes: object
    k_scales: object
    v_codes: object
    v_scales: object
    raw: object = None
    pooled: object = None


@dataclass(frozen=True, slots=True, eq=False)
class IndexerInputs:
    """The indexer's projections and norms: q [rows, Ni * Di], raw [rows, Di], q_norm, k_norm [Di]; queries is filled."""

    q: object
    raw: object
    q_norm: object
    k_norm: object
    queries: object


def launch_heads(
    device: CudaDevice, config: ModelConfig, window: WindowTables, kv: str, raw_format: str, projected, k, v, q_norm, k_norm,
    table, queries, cells: AttentionCells, indexer: IndexerInputs | None, programmatic: bool = False,
) -> Launch:
    """Fill queries [rows, heads, D], the rows' cells and pooled keys, and the indexer's queries.

    Without `projected` (and queries) only cells are written; without `indexer` there are no raw and pooled keys.
    """
    shape = head_shape(config, kv, raw_format, projected is not None, indexer is not None)
    n_vectors = shape.n_q + 2 * shape.n_kv + (shape.n_indexer + 1 if indexer else 0)
    # Arguments that a variant does not read are the keys.
    chosen = indexer or IndexerInputs(k, k, k_norm, k_norm, k)
    projected, queries, q_norm = (k if argument is None else argument for argument in (projected, queries, q_norm))
    arguments = (
        projected, k, v, chosen.q, chosen.raw, q_norm, k_norm, chosen.q_norm, chosen.k_norm, np.float32(config.rms_epsilon), table,
        window.slots, window.positions, window.segment_of_row, window.first, np.int32(cells.n_cells), np.int32(cells.n_blocks),
        queries, cells.k_codes, cells.k_scales, cells.v_codes, cells.v_scales, chosen.queries,
        k if cells.raw is None else cells.raw, k if cells.pooled is None else cells.pooled,
    )
    grid = ((n_vectors + WARPS - 1) // WARPS, window.n_rows)
    return Launch(device, heads_kernel(shape, device.target), Shape(grid, THREADS), arguments, programmatic)
