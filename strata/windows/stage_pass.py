"""The window pass through a stage: the model's structure, written once for every executor.

MODEL.md section 3: per layer the n-gram table where there is one, then attention or gated delta net, then the experts,
each between a read and a write of the residual streams.  Does not know: how anything is computed, or where.
"""

import numpy as np

from strata.rows import Window
from strata.windows.contract import DraftLayer


def run_stage(executor, window: Window, residual: np.ndarray | None, drafts: DraftLayer | None = None) -> np.ndarray:
    """Run a window through one stage.

    `residual` float32 [rows, C, H] is what the stage before handed off, None for the first stage.  Returns the residual
    to hand off, or, from the last stage, the logits [len(window.logit_rows), vocabulary].  A draft layer beside the last
    stage is handed the final residual of the windows that are `for_drafts`, where it lies.
    """
    if executor.replays:
        result = executor.run_window(window, residual, pass_blocks)
        rows = executor.last_residual
    else:
        executor.begin(window)
        rows = executor.embed() if residual is None else residual
        logits = pass_blocks(executor, rows)
        result = rows if logits is None else logits
    if executor.placed.output is not None and drafts is not None and window.for_drafts:
        drafts.hold(window, rows)
    return result


def pass_blocks(executor, residual):
    """Run the blocks of a stage on the rows' residual, in place; return the last stage's logits, None from another stage.

    `residual` None has the executor embed the window's tokens.
    """
    placed = executor.placed
    rows = executor.embed() if residual is None else residual
    for layer in placed.layers:
        index = layer.index
        if layer.ngrams is not None:
            executor.ngram(index, rows)
        mixed, inject = executor.read_streams(index, "attention", layer.attention_mixer, rows)
        y = executor.qsa(index, mixed) if layer.qsa is not None else executor.gdn(index, mixed)
        executor.write_streams(index, "attention", rows, y, inject)
        mixed, inject = executor.read_streams(index, "moe", layer.moe_mixer, rows)
        executor.write_streams(index, "moe", rows, executor.moe(index, mixed), inject)
    return None if placed.output is None else executor.head(rows)
