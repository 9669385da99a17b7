"""Faults by the rows of a window: another order from some number of rows on (threshold), another kernel for one row or for a
verify window (width).

Does not know: checks.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from harness.faults.fault import Fault
from harness.faults.hooks import add_probe, wrap
from harness.faults.ulp import UlpFault, Where
from harness.faults.when import UlpWhen, has_company, is_lone_row, is_verify
from strata.batch.engine import Engine
from strata.batch.settings import EngineSettings
from strata.rows import Window

THRESHOLD, WIDTH = "threshold", "width"
IN_COMPANY = ("batch/slots-2", "ledger batch/slots-2")
CHUNKS = ("chunks/size-1", "chunks/size-7")
VERIFY = ("window/width-4", "window/width-8", "ledger window/width-4")


def faults() -> list[Fault]:
    """Return the faults."""
    return [*_thresholds(), *_library_orders(), _grouped(), *_widths()]


def _thresholds() -> list[Fault]:
    company = [
        _ulp(
            THRESHOLD,
            f"threshold-company-{point}",
            Where(point, layer, min_segments=2),
            "rows of two conversations take another path",
            IN_COMPANY,
        )
        for point, layer in (
            ("gdn.scan", 5),
            ("qsa.attended", 3),
            ("moe.experts", 2),
            ("attention.low", 8),
            ("moe.router", 4),
            ("logits", -1),
        )
    ]
    rows = [
        _ulp(THRESHOLD, f"threshold-{n}-rows-{point}", Where(point, layer, min_rows=n), f"another path from {n} rows on", CHUNKS)
        for point, layer, n in (("gdn.qkv", 6, 2), ("moe.shared", 3, 4), ("qsa.output", 11, 8), ("ngram.gate", 1, 9), ("moe.mixed", 7, 16))
    ]
    far = _when_company(
        "threshold-company-64-cells",
        Where("qsa.attended", 7),
        _is_past_a_split,
        "in company, splits of more than 64 cells merge in another order",
        ("deep batch/slots-2",),
    )
    eighth = _when_company(
        "threshold-slot-7", Where("moe.output", 4), _has_slot_7, "a window with slot 7 takes another path", ("batch/slots-8",)
    )
    return [*company, *rows, far, eighth]


def _is_past_a_split(window: Window) -> bool:
    return has_company(window) and int(window.positions.max()) >= 64


def _has_slot_7(window: Window) -> bool:
    return has_company(window) and 7 in window.segment_slot


def _when_company(name: str, where: Where, when: Callable[[Window], bool], words: str, seen_by: tuple[str, ...]) -> Fault:
    return replace(_when(name, where, when, words, seen_by), kind=THRESHOLD)


def _widths() -> list[Fault]:
    verify = [
        _when(f"width-verify-{point}", Where(point, layer), is_verify, f"a verify window takes another path, at {point}", VERIFY)
        for point, layer in (
            ("gdn.scan", 4),
            ("qsa.attended", 7),
            ("moe.output", 6),
            ("gdn.memory.stored", 2),
            ("ngram.residual", 1),
            ("head.low", -1),
        )
    ]
    lone = [
        _when(f"width-lone-{point}", Where(point, layer), is_lone_row, f"one row alone takes another path, at {point}", IN_COMPANY)
        for point, layer in (("qsa.q", 3), ("moe.hidden", 10), ("gdn.output", 8))
    ]
    exactly = _when("width-4-logits", Where("logits", -1), _is_four_rows, "windows of four rows take another path, at the head", VERIFY)
    return [*verify, *lone, exactly, _short_history()]


def _short_history() -> Fault:
    """A window of one row leaves a history of one token."""

    def plant(engine: Engine) -> None:
        for stage in engine.stages:
            wrap(stage.executor, "_keep_ngrams", lambda keep, executor=stage.executor: _forgetting(keep, executor))

    words = "a segment of which one row is kept forgets the token before it"
    return Fault("width-history", WIDTH, "token history of the n-gram layer", words, ("window/right-8", "chunks/size-7"), plant)


def _forgetting(keep: Callable, executor):
    def kept_rows(window: Window, layer: int, rows: np.ndarray, kept: np.ndarray) -> None:
        keep(window, layer, rows, kept)
        executor.ngrams[layer].tokens[window.segment_slot[kept == 1], 1] = -1

    return kept_rows


def _is_four_rows(window: Window) -> bool:
    return is_verify(window) and window.n_rows == 4


def _ulp(kind: str, name: str, where: Where, words: str, seen_by: tuple[str, ...]) -> Fault:
    return Fault(name, kind, f"{where.point}, layer {where.layer}", words, seen_by, lambda engine: add_probe(engine, UlpFault(where)))


def _when(name: str, where: Where, when: Callable[[Window], bool], words: str, seen_by: tuple[str, ...]) -> Fault:
    return Fault(name, WIDTH, f"{where.point}, layer {where.layer}", words, seen_by, lambda engine: add_probe(engine, UlpWhen(where, when)))


# ---- float products in another order


def _library_orders() -> list[Fault]:
    parts = (("hc_attn_down", 5), ("ffn_gate_inp.", 5), ("ssm_alpha", 2), ("hc_ffn_inject", 3))
    found = [
        Fault(
            f"threshold-library-{part.strip('.')}",
            THRESHOLD,
            f"float product {part.strip('.')}",
            f"the library's order of additions from {n} rows on",
            ("chunks/size-1", "batch/slots-6"),
            _library_order(part, n),
        )
        for part, n in parts
    ]
    in_company = Fault(
        "threshold-library-company",
        THRESHOLD,
        "float product hc_ffn_up",
        "the library's order of additions in company",
        IN_COMPANY,
        _library_order("hc_ffn_up", 2, has_company),
    )
    return [*found, in_company]


def _library_order(part: str, n_rows: int, when: Callable[[Window], bool] = lambda window: True):
    def plant(engine: Engine) -> None:
        for stage in engine.stages:
            wrap(stage.executor, "_times", lambda times, executor=stage.executor: _by_library(times, executor, part, n_rows, when))

    return plant


def _by_library(times: Callable, executor, part: str, n_rows: int, when: Callable[[Window], bool]):
    def product(matrix, x):
        if part not in matrix.name or x.values.shape[0] < n_rows or not when(executor.window):
            return times(matrix, x)
        weights = matrix.weights
        if weights.dtype == np.uint16:
            weights = (weights.astype(np.uint32) << 16).view(np.float32)
        return np.ascontiguousarray(x.values @ weights.T)

    return product


# ---- the rounding mode in which company matters


def _grouped() -> Fault:
    return Fault(
        "threshold-grouped",
        THRESHOLD,
        "coding of an expert's rows",
        "an expert's only row of a window is coded with one scale per 256 values",
        IN_COMPANY,
        settings=_to_grouped,
    )


def _to_grouped(settings: EngineSettings) -> EngineSettings:
    return replace(settings, rounding="grouped")
