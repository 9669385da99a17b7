"""The fixture's model on the host executor, block by block, with every block's result in the stranger's form.

The selection is narrowed (top_k of 4, so 7 cells) in both, or a short prompt would never choose cells.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from strata.host.device import HostDevice
from strata.host.executor import HostExecutor
from strata.host.placed import place_stage
from strata.model.model import Model, load_model
from strata.numerics.rounding import MODES
from strata.rows import Segment, Window
from tests.oracle.config import read_config
from tests.unit.numerics.bounds import bits, equal_bits
from tests.unit.numerics.stranger.model import Point, Stranger
from tests.unit.numerics.stranger.tensors import Tensors

FOLDER = Path(__file__).resolve().parents[3] / "fixtures" / "strata-mini-mix"
MAIN = FOLDER / "strata-mini-mix.gguf"
TOP_K = 4
CONTEXT = 64


@cache
def engine_model() -> Model:
    return load_model([MAIN])


@cache
def stranger_tensors() -> Tensors:
    return Tensors([MAIN])


def new_stranger(mode: str, kv: str) -> Stranger:
    tensors = stranger_tensors()
    config = read_config(tensors.keys)
    return Stranger(tensors, replace(config, selected_width=TOP_K + config.index_block - 1), mode, kv)


def new_executor(
    mode: str, kv: str, n_slots: int = 2, n_threads: int = 1, context: int = CONTEXT, last: int | None = None
) -> HostExecutor:
    """Layers 0 .. last-1, or all of them, on one device; close `executor.device` afterwards."""
    model = engine_model()
    config = replace(model.config, indexer_top_k=TOP_K)
    placed = place_stage(model.weights, config, 0, last or config.n_layers)
    return HostExecutor(HostDevice("host:0", None, n_threads), config, placed, MODES[mode], kv, n_slots, context)


def run_points(executor: HostExecutor, window: Window) -> list[Point]:
    """The window pass, with copies of what each block gave."""
    executor.begin(window)
    residual = executor.embed()
    seen = [("embed", -1, residual.copy())]
    for layer in executor.placed.layers:
        index = layer.index
        if layer.ngrams is not None:
            executor.ngram(index, residual)
            seen.append(("ngram", index, residual.copy()))
        mixed, inject = executor.read_streams(index, "attention", layer.attention_mixer, residual)
        y = executor.qsa(index, mixed) if layer.qsa is not None else executor.gdn(index, mixed)
        executor.write_streams(index, "attention", residual, y, inject)
        seen += [("attention", index, y), ("residual", index, residual.copy())]
        mixed, inject = executor.read_streams(index, "moe", layer.moe_mixer, residual)
        y = executor.moe(index, mixed)
        executor.write_streams(index, "moe", residual, y, inject)
        seen += [("moe", index, y), ("residual", index, residual.copy())]
    if executor.placed.output is not None:
        seen.append(("logits", -1, executor.head(residual)))
    return seen


def first_difference(found, expected) -> str | None:
    """The first point whose bits differ, by name."""
    assert [(name, layer) for name, layer, _ in found] == [(name, layer) for name, layer, _ in expected]
    for (name, layer, a), (_, _, b) in zip(found, expected, strict=True):
        if not equal_bits(a, b):
            rows = np.flatnonzero((bits(a) != bits(b)).reshape(len(a), -1).any(axis=1))
            return f"{name} of layer {layer}, rows {rows.tolist()}"
    return None


def one_slot(tokens, start: int = 0, slot: int = 1, keep: bool = True) -> Window:
    """A window of one session whose rows all want logits."""
    return Window.of([Segment(slot, start, tuple(map(int, tokens)), len(tokens))], keep)


def prompt(n: int) -> list[int]:
    """The first tokens of a code prompt of the reference."""
    with np.load(FOLDER / "reference-mix.npz") as stored:
        return stored["p1_ids"][:n].tolist()
