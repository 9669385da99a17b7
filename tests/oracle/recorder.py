"""Keeps what a run computed at named points, row by row.

Names and values per row (layer in brackets where there is one):
    residual[l] [C, H] after the layer      ngram_residual[l] [C, H] after the n-gram table
    attn_mixed[l], ffn_mixed[l] [H]         attn_inject[l], ffn_inject[l] [C]       attn_output[l], ffn_output[l] [H]
    router_logits[l] [E]                    router_ids[l], router_weights[l] [K]
    cells[l] ascending ids                  block_scores[l] complete blocks, then the dead key's row
    head_mixed[None] [H]
Does not know: what the values mean.
"""

from collections.abc import Iterable

import numpy as np


class Recorder:
    """Collects values by (name, layer); `names` limits which (None: all)."""

    def __init__(self, names: Iterable[str] | None = None) -> None:
        self.names = None if names is None else frozenset(names)
        self._rows: dict[tuple[str, int | None], list[np.ndarray]] = {}

    def wants(self, name: str) -> bool:
        """Tell whether values called `name` are kept."""
        return self.names is None or name in self.names

    def note(self, name: str, layer: int | None, rows: Iterable[np.ndarray]) -> None:
        """Append one value per row."""
        if self.wants(name):
            self._rows.setdefault((name, layer), []).extend(np.array(row) for row in rows)

    def rows(self, name: str, layer: int | None = None) -> list[np.ndarray]:
        """All values of `name` at `layer`, one per position since the recorder was attached."""
        return self._rows[(name, layer)]
