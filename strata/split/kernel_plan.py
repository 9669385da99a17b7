"""Which kernels a model needs on a card, found without one: every kind of window is recorded on a blueprint.

Kinds of windows: 1 to 8 rows, kept and to be committed, all rows' logits wanted; prompt chunks of up to the given rows; contexts in
which every cell is attended to and in which cells are selected, and one row in each class of contexts, as the choice of cells has kernels
by the number of blocks.  The same windows observed, at outlines and at every point; with an expert tier, and with counts of routing; and
the steps of the draft layer.  A layer split adds no kernels to those of the whole model, an expert tier the same few whatever it holds,
buffers that are lent to a chunk none.
Does not know: compilers, folders.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from strata.cuda.card.blueprint import Blueprint
from strata.cuda.drafting.draft_layer import CudaDrafts
from strata.cuda.drafting.placed_drafts import place_drafts
from strata.cuda.memory.cell_classes import SMALLEST_CLASS
from strata.cuda.memory.placed import CardStage, place_stage
from strata.cuda.memory.workspace import PLACES
from strata.cuda.stage.executor import CudaExecutor
from strata.cuda.stage.taps import CardTaps
from strata.cuda.tier.expert_cache import CardExpertMemory
from strata.experts.residency import Residency
from strata.experts.usage import new_counts
from strata.host.placed import place_stage as placed_on_host
from strata.model.config import ModelConfig
from strata.model.weights import Weights
from strata.numerics.rounding import mode_named
from strata.places import OUTLINES
from strata.rows import Segment, Window
from strata.windows.stage_pass import pass_blocks

CHUNK = 2 * PLACES
"""Rows of a chunk that stands for all chunks where their kernels are the same."""


class EveryPoint:
    """Contains every point's name."""

    def __contains__(self, point: object) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Sessions:
    """What sessions a card has: slots, positions of each, rows of the longest prompt chunk."""

    n_slots: int
    context: int
    chunk_rows: int


def needed_kernels(
    weights: Weights, config: ModelConfig, capability: tuple[int, int], formats: Sequence[str], n_slots: int, context: int, chunk_rows: int
) -> list[tuple]:
    """Return (dispatcher, argument types) of every kernel that a model needs on a card, for K/V `formats`."""
    device, sessions = Blueprint(capability), Sessions(n_slots, context, chunk_rows)
    placed = place_stage(device, weights, config, 0, config.n_layers)
    for kv in formats:
        record_stage(device, config, placed, kv, n_slots, context, chunk_rows)
    observed = _executor(device, config, placed, formats[0], sessions)
    _record_observed(observed, EveryPoint(), widths_of(chunk_rows, context))
    _record_observed(observed, OUTLINES, (1, PLACES, min(context, CHUNK)))
    _record_tier(weights, config, placed, observed, sessions)
    if weights.draft is not None:
        drafts = place_drafts(device, weights, config, placed)
        for kv in formats:
            _record_drafts(CudaDrafts(device, config, drafts, kv, n_slots, context, observed.table), sessions)
    return list(device.needed)


def record_stage(device: Blueprint, config: ModelConfig, placed: CardStage, kv: str, n_slots: int, context: int, chunk_rows: int) -> None:
    """Note in `device.needed` what the windows of a stage need; the stage was placed on the same blueprint."""
    executor = _executor(device, config, placed, kv, Sessions(n_slots, context, chunk_rows))
    for window in windows_of(context, config.selection_width, chunk_rows):
        executor.record(window, True, pass_blocks)


def record_observed(executor: CudaExecutor, window: Window, watched: Container[str]) -> None:
    """Note what a window needs whose `watched` points are looked at, and what is made once more where an observer changes values."""
    taps = CardTaps(watched)
    executor.record(window, True, pass_blocks, taps)
    for tap in taps.taken:
        if tap.again is not None:
            tap.again()


def _executor(device: Blueprint, config: ModelConfig, placed: CardStage, kv: str, sessions: Sessions) -> CudaExecutor:
    return CudaExecutor(device, config, placed, mode_named("canonical"), kv, sessions.n_slots, sessions.context)


def _record_observed(executor: CudaExecutor, watched: Container[str], widths: Sequence[int]) -> None:
    """Note what windows of some widths need, kept and to be committed, at a context's begin and end."""
    for n_rows in widths:
        for start in sorted({0, executor.context - n_rows}):
            for keep in (True, False)[: 2 if n_rows <= PLACES else 1]:
                record_observed(executor, Window.of([Segment(0, start, (0,) * n_rows, n_rows)], keep), watched)


def _record_tier(weights: Weights, config: ModelConfig, placed: CardStage, observed: CudaExecutor, sessions: Sessions) -> None:
    """Note what an expert tier adds, and counts of routing without one: the same launches for few rows and for a chunk, whatever a cache holds."""
    device = observed.device
    executor, counted = (_executor(device, config, placed, observed.kv, sessions) for _ in range(2))
    counted.routed = new_counts(config.n_layers, config.n_experts)
    layers = {layer.index: layer.moe for layer in placed_on_host(weights, config, 0, config.n_layers).layers}
    memory, table = CardExpertMemory(device, layers, 1, 1, None), Residency(config.n_layers, config.n_experts, 1)
    sources = np.zeros((config.n_layers, config.n_experts, 3), np.int64)
    executor.tier = SimpleNamespace(memory=memory, residency=table, share=0, sources=sources, sources_version=0)
    for n_rows in (1, 2, min(sessions.context, CHUNK)):
        window = Window.of([Segment(0, 0, (0,) * n_rows, n_rows)], True)
        for one in (executor, counted):
            one.record(window, True, pass_blocks)
        record_observed(executor, window, EveryPoint())


def _record_drafts(layer: CudaDrafts, sessions: Sessions) -> None:
    """Note what the draft layer's steps need: cells of a window's rows or a chunk's, and proposals for 1 to all slots in each class of contexts."""
    for n_rows in widths_of(sessions.chunk_rows, sessions.context):
        layer.record_build(n_rows)
    for n_rows in range(1, sessions.n_slots + 1):
        for most_cells in classes_of(sessions.context):
            layer.record_proposal(n_rows, most_cells)


def widths_of(chunk_rows: int, context: int) -> list[int]:
    """Return the rows of windows that stand for all: 1 to 8, then growing by powers of two, and one more."""
    wide = {rows for n in range(3, chunk_rows.bit_length()) for rows in (1 << n, (1 << n) + 1)}
    return sorted(rows for rows in {*range(1, PLACES + 1), *wide, chunk_rows} if rows <= min(chunk_rows, context) or rows <= PLACES)


def classes_of(context: int) -> list[int]:
    """Return the classes of contexts, as numbers of cells; the last one is the whole context."""
    found, length = [], SMALLEST_CLASS
    while length < context:
        found.append(length)
        length *= 2
    return [*found, context]


def windows_of(context: int, selection_width: int, chunk_rows: int) -> Iterator[Window]:
    """Yield one window of every kind that fits into a context."""
    lengths = {min(context, length) for length in (SMALLEST_CLASS, selection_width, selection_width + 1, 4 * selection_width, context)}
    for n_rows in widths_of(chunk_rows, context):
        for length in sorted(length for length in lengths if length >= n_rows):
            for keep in (True, False)[: 2 if n_rows <= PLACES else 1]:
                yield Window.of([Segment(0, length - n_rows, (0,) * n_rows, n_rows)], keep)
    for length in classes_of(context)[:-1]:
        yield Window.of([Segment(0, length - 1, (0,), 1)], True)
