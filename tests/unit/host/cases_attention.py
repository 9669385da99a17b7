"""Row operations of sparse attention: each row is one query of its own session, with that session's cells."""

from functools import partial

import numpy as np

from strata.host import attention, indexer
from strata.host.cells import cell_format
from strata.numerics.rotary import rotary_table
from tests.oracle import operations as oracle
from tests.unit.host.cases_streams import normal
from tests.unit.host.operation import RowOperation
from tests.unit.numerics.stranger import attention as plain
from tests.unit.numerics.stranger.functions import sigmoid
from tests.unit.numerics.stranger.rotary import turned
from tests.unit.numerics.stranger.sums import normed

D, KV_HEADS, GROUP, R, BASE = 64, 2, 3, 16, 1e6
HEADS = KV_HEADS * GROUP
CELLS = 150
"""Selected cells of a row: three splits of 64."""
DI, BLOCK, POSITIONS = 32, 4, 400
EPS = np.float32(1e-6)
SCORE_SCALE = np.float32(1) / np.sqrt(np.float32(D))
TABLE = rotary_table(BASE, R, POSITIONS)
_generator = np.random.default_rng(3)
NORM, INDEX_NORM = normal(_generator, D), normal(_generator, DI)


def finish(control, x, positions):
    out = np.empty((len(x), HEADS, D), np.float32)
    attention.finish_heads(x, NORM, EPS, TABLE, positions, 2 * D, out)
    return (out,)


def plain_finish(x, positions, **order):
    queries = x.reshape(len(x), HEADS, 2, D)[:, :, 0]
    return (turned(normed(queries, NORM, EPS, **order), TABLE[positions][:, None]),)


def exact_finish(x, positions):
    return (oracle.normed_heads(oracle.split_query_gate(x, HEADS)[0], NORM, positions, BASE, R, 1e-6),)


def store(kv, control, x):
    form, n = cell_format(kv), len(x)
    codes, scales = np.zeros((n, 3, KV_HEADS, D), form.code_type), np.zeros((n, 3, KV_HEADS, form.n_scales(D)), np.uint16)
    attention.store_cells(kv)(x, np.arange(n, dtype=np.int32), np.full(n, 1, np.int32), codes, scales)
    return codes, scales


def plain_store(kv, x):
    codes, scales = plain.stored(kv, x)
    around = ((0, 0), (1, 1), (0, 0), (0, 0))
    return np.pad(codes[:, None], around), np.pad(scales[:, None], around)


def make_attend(kv, generator, n: int) -> dict:
    """Codes and scales of 150 cells per session, and each row's ascending selection among 150, 65, 64 or 1 of them."""
    k_codes, k_scales = plain.stored(kv, normal(generator, n, CELLS, KV_HEADS, D))
    v_codes, v_scales = plain.stored(kv, normal(generator, n, CELLS, KV_HEADS, D))
    counts = np.array([(CELLS, 65, 64, 1, 129)[i % 5] for i in range(n)], np.int32)
    cells = np.stack([np.sort(generator.permutation(CELLS)) for _ in range(n)]).astype(np.int32)
    for i, count in enumerate(counts):
        cells[i, :count] = np.sort(generator.choice(CELLS, count, replace=False))
    return {
        "queries": normal(generator, n, HEADS, D) * 4, "k_codes": k_codes, "k_scales": k_scales, "v_codes": v_codes,
        "v_scales": v_scales, "cells": cells, "counts": counts,
    }


def attend(kv, control, queries, k_codes, k_scales, v_codes, v_scales, cells, counts):
    out, slots = np.empty_like(queries), np.arange(len(queries), dtype=np.int32)
    attention.attend(kv)(control, queries, k_codes, k_scales, v_codes, v_scales, slots, cells, counts, SCORE_SCALE, out)
    return (out,)


def each_row(kv, attended, queries, k_codes, k_scales, v_codes, v_scales, cells, counts) -> np.ndarray:
    out = []
    for i, query in enumerate(queries):
        keys, values = plain.read_back(kv, k_codes[i], k_scales[i]), plain.read_back(kv, v_codes[i], v_scales[i])
        out.append(attended(query, keys, values, cells[i, : counts[i]]))
    return (np.stack(out),)


def by_head(query, keys, values, cells, **order):
    return np.stack([plain.attended(query[h], keys[cells, h // GROUP], values[cells, h // GROUP], **order) for h in range(HEADS)])


def attending(kv: str) -> RowOperation:
    return RowOperation(
        f"attention over {kv} cells", partial(make_attend, kv), partial(attend, kv), partial(each_row, kv, by_head),
        partial(each_row, kv, oracle.attend), wrong={"splits of 32": partial(each_row, kv, partial(by_head, split=32))},
    )


def storing(kv: str) -> RowOperation:
    return RowOperation(
        f"storing {kv} cells", lambda g, n: {"x": normal(g, n, KV_HEADS, D)}, partial(store, kv), partial(plain_store, kv),
        wrong={"half of it": lambda x: plain_store(kv, x * np.float32(0.5))},
    )


def gate(control, attended, projected):
    out = np.empty((len(attended), HEADS * D), np.float32)
    attention.gate(attended, projected, out)
    return (out,)


def pool(raw_format, control, raw):
    """Row i is the last cell of block 7 of session i; raw keys [n, 4, Di] of its cells, as stored."""
    n = len(raw)
    cells = np.zeros((n, 40, 1, DI), raw.dtype)
    cells[:, 28:32, 0] = raw
    pooled, slots = np.zeros((n, 10, DI), np.float32), np.arange(n, dtype=np.int32)
    scales = np.zeros((n, 40, 1, 0), np.uint16)
    indexer.pool_blocks(raw_format)(cells, scales, BLOCK, INDEX_NORM, EPS, TABLE, slots, np.full(n, 31, np.int32), pooled)
    return (pooled[:, 7],)


def plain_pool(raw_format, raw, position=28, **order):
    keys = plain.read_back(raw_format, raw, None)
    return (np.stack([plain.pooled(row, INDEX_NORM, TABLE[position], EPS, **order) for row in keys]),)


def exact_pool(raw_format, raw):
    keys = plain.read_back(raw_format, raw, None)
    return (np.stack([oracle.pooled_keys(row, INDEX_NORM, BLOCK, BASE, R, 1e-6, first_block=7)[0] for row in keys]),)


def pooling(raw_format: str) -> RowOperation:
    def make(generator, n):
        return {"raw": plain.stored(raw_format, normal(generator, n, BLOCK, DI))[0]}

    return RowOperation(
        f"pooling {raw_format} keys", make, partial(pool, raw_format), partial(plain_pool, raw_format), partial(exact_pool, raw_format),
        wrong={"eight lanes": partial(plain_pool, raw_format, n_lanes=8), "last position": partial(plain_pool, raw_format, position=31)},
    )


def score(control, queries, pooled):
    n, n_blocks = pooled.shape[:2]
    scores = np.zeros((n, n_blocks), np.float32)
    slots = np.arange(n, dtype=np.int32)
    indexer.score_blocks(control, queries, pooled, slots, np.full(n, n_blocks, np.int32), scores)
    return (scores,)


OPERATIONS = (
    RowOperation(
        "query heads", lambda g, n: {"x": normal(g, n, HEADS * 2 * D), "positions": g.integers(0, POSITIONS, n).astype(np.int32)},
        finish, plain_finish, exact_finish, wrong={"eight lanes": partial(plain_finish, n_lanes=8)},
    ),
    *map(storing, ("f32", "f16", "int8")),
    *map(attending, ("f32", "f16", "int8")),
    RowOperation(
        "output gate", lambda g, n: {"attended": normal(g, n, HEADS, D), "projected": normal(g, n, HEADS * 2 * D)}, gate,
        lambda attended, projected: ((attended * sigmoid(projected.reshape(-1, HEADS, 2, D)[:, :, 1])).reshape(len(attended), -1),),
        lambda attended, projected: (oracle.gate_heads(attended, oracle.split_query_gate(projected, HEADS)[1]),),
        wrong={"the query's half": lambda attended, projected: (
            (attended * sigmoid(projected.reshape(-1, HEADS, 2, D)[:, :, 0])).reshape(len(attended), -1),)},
    ),
    *map(pooling, ("f16", "f32")),
    RowOperation(
        "block scores", lambda g, n: {"queries": normal(g, n, 2, DI), "pooled": normal(g, n, 40, DI)}, score,
        lambda queries, pooled: (np.stack([plain.block_scores(q, p) for q, p in zip(queries, pooled, strict=True)]),),
        lambda queries, pooled: (np.stack([oracle.block_scores(q, p) for q, p in zip(queries, pooled, strict=True)]),),
        wrong={"sum before the comparison": lambda queries, pooled: (
            np.stack([plain.block_scores(q.sum(axis=0, keepdims=True), p) for q, p in zip(queries, pooled, strict=True)]),)},
    ),
)
