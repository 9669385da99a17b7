"""Every single operation of the model, in one place for the tests of an engine.

Pure float64 functions over arrays whose first dimension is rows; each is defined, with shapes, in its own room.
Head: `head_logits`.  Draft choice: `draft_pick`.
"""

import numpy as np

from tests.oracle.attention import (
    TAIL_BONUS,
    attend,
    block_scores,
    dead_key,
    gate_heads,
    normed_heads,
    pooled_keys,
    select_cells,
    split_query_gate,
)
from tests.oracle.elementary import linear, rms, rope, sigmoid, silu, softmax, softplus, widened
from tests.oracle.experts import expert_ffn, moe_combine, router
from tests.oracle.gdn import gdn_conv, gdn_gate_norm, gdn_gates, gdn_qk_norm, gdn_scan, gdn_split
from tests.oracle.ngram import context_tokens, ple_block, ple_conv, ple_embedding, ple_gate, ple_hash_rows
from tests.oracle.streams import stream_read, stream_write

__all__ = [
    "TAIL_BONUS", "attend", "block_scores", "context_tokens", "dead_key", "draft_pick", "expert_ffn", "gate_heads",
    "gdn_conv",
    "gdn_gate_norm", "gdn_gates", "gdn_qk_norm", "gdn_scan", "gdn_split", "greedy_pick", "head_logits", "linear",
    "moe_combine", "normed_heads", "ple_block", "ple_conv", "ple_embedding", "ple_gate", "ple_hash_rows",
    "pooled_keys", "rms", "rope", "router", "select_cells", "sigmoid", "silu", "softmax", "softplus",
    "split_query_gate", "stream_read", "stream_write", "widened",
]  # fmt: skip


def head_logits(mixed, output) -> np.ndarray:
    """output . mixed: mixed [rows, H], output [V, H] -> [rows, V]."""
    return linear(mixed, output)


def greedy_pick(logits) -> np.ndarray:
    """Index of the largest logit of each row, ties to the lower id: [rows, V] -> int64 [rows]."""
    return np.argmax(widened(logits), axis=-1)


def draft_pick(logits, draft_ids) -> tuple[int, float]:
    """Largest logit [V] among the ascending `draft_ids` (ties: lower id) and its probability within that subset."""
    subset = widened(logits)[np.asarray(draft_ids)]
    best = int(np.argmax(subset))
    return int(draft_ids[best]), float(softmax(subset)[best])
