"""Which kernels a model needs on a card, found without one: every kind of window is recorded on a blueprint.

Kinds of windows: 1 to 8 rows, kept and to be committed, all rows' logits wanted; prompt chunks of up to the given rows; contexts in
which every cell is attended to and in which cells are selected, and one row in each class of contexts, as the choice of cells has kernels
by the number of blocks.  A layer split adds no kernels to those of the whole model, an expert tier the same few whatever it holds.
Does not know: compilers, folders.
"""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import numpy as np

from strata.cuda.blueprint import Blueprint
from strata.cuda.executor import SMALLEST_CLASS, CudaExecutor
from strata.cuda.expert_cache import CardExpertMemory
from strata.cuda.placed import CardStage, place_stage
from strata.cuda.workspace import PLACES
from strata.experts.residency import Residency
from strata.experts.usage import new_counts
from strata.host.placed import place_stage as placed_on_host
from strata.model.config import ModelConfig
from strata.model.weights import Weights
from strata.numerics.rounding import mode_named
from strata.rows import Segment, Window
from strata.windows.stage_pass import pass_blocks


def needed_kernels(
    weights: Weights, config: ModelConfig, capability: tuple[int, int], formats: Sequence[str], n_slots: int, context: int, chunk_rows: int
) -> list[tuple]:
    """Return (dispatcher, argument types) of every kernel that windows of a model need on a card, for K/V `formats`."""
    device = Blueprint(capability)
    placed = place_stage(device, weights, config, 0, config.n_layers)
    for kv in formats:
        record_stage(device, config, placed, kv, n_slots, context, chunk_rows)
    _record_tier(device, weights, config, placed, formats[0], n_slots, context)
    return list(device.needed)


def _record_tier(device: Blueprint, weights: Weights, config: ModelConfig, placed: CardStage, kv: str, n_slots: int, context: int) -> None:
    """Note what an expert tier adds, and counts of routing without one: the same launches for few rows and for a chunk, whatever a cache holds."""
    executor, counted = (CudaExecutor(device, config, placed, mode_named("canonical"), kv, n_slots, context) for _ in range(2))
    counted.routed = new_counts(config.n_layers, config.n_experts)
    layers = {layer.index: layer.moe for layer in placed_on_host(weights, config, 0, config.n_layers).layers}
    memory, table = CardExpertMemory(device, layers, 1, 1, None), Residency(config.n_layers, config.n_experts, 1)
    sources = np.zeros((config.n_layers, config.n_experts, 3), np.int64)
    executor.tier = SimpleNamespace(memory=memory, residency=table, share=0, sources=sources, sources_version=0)
    for n_rows in (1, 2, min(context, 2 * PLACES)):
        for one in (executor, counted):
            one.record(Window.of([Segment(0, 0, (0,) * n_rows, n_rows)], True), True, pass_blocks)


def record_stage(device: Blueprint, config: ModelConfig, placed: CardStage, kv: str, n_slots: int, context: int, chunk_rows: int) -> None:
    """Note in `device.needed` what the windows of a stage need; the stage was placed on the same blueprint."""
    executor = CudaExecutor(device, config, placed, mode_named("canonical"), kv, n_slots, context)
    for window in windows_of(context, config.selection_width, chunk_rows):
        executor.record(window, True, pass_blocks)


def windows_of(context: int, selection_width: int, chunk_rows: int) -> Iterator[Window]:
    """Yield one window of every kind that fits into a context; widths beyond 8 rows grow by powers of two, and one more."""
    wide = {rows for n in range(3, chunk_rows.bit_length()) for rows in (1 << n, (1 << n) + 1)}
    widths = sorted(rows for rows in {*range(1, PLACES + 1), *wide, chunk_rows} if rows <= min(chunk_rows, context) or rows <= PLACES)
    lengths = {min(context, length) for length in (SMALLEST_CLASS, selection_width, selection_width + 1, 4 * selection_width, context)}
    for n_rows in widths:
        for length in sorted(length for length in lengths if length >= n_rows):
            for keep in (True, False)[: 2 if n_rows <= PLACES else 1]:
                yield Window.of([Segment(0, length - n_rows, (0,) * n_rows, n_rows)], keep)
    length = SMALLEST_CLASS
    while length < context:
        yield Window.of([Segment(0, length - 1, (0,), 1)], True)
        length *= 2
