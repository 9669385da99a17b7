"""The buffers of prompt chunks on a card, in memory that is given: an own block, or lent slots of the expert cache.

A layout names every buffer that is as long as a chunk, with the bytes of one row; each begins at a multiple of ALIGNMENT.  Lists,
constants, logits and what only observed windows ask for stay in the stage's own workspace, as all buffers of decode windows do:
lent memory keeps nothing between two loans.  Does not know: where the memory comes from, launches.
"""

from dataclasses import dataclass

import numpy as np

from strata.cuda.memory.workspace import Workspace
from strata.cuda.packed.products import Coded
from strata.formats.contract import GROUP
from strata.model.config import ModelConfig

ALIGNMENT = 512
FLOAT, WORD, LONG = 4, 4, 8
CODED = (("codes", np.int8, 1), ("turned", np.int8, 1), ("scales", np.float32, GROUP), ("sums", np.int32, GROUP))
"""Arrays of coded rows: name, type, values that share one of its entries."""
LEAST_ROWS = 9
"""Rows of the shortest chunk: shorter windows are decode windows."""


class CardChunkLayout:
    """Which buffers the chunks of a stage's device have, for contexts of up to `context` positions; `row_bytes` of all together."""

    def __init__(self, config: ModelConfig, context: int) -> None:
        self.row = {**_attention(config, context), **_streams(config), **_experts(config), **(_ngrams(config) if config.ple_layers else {})}
        slack = -(-ALIGNMENT * (len(self.row) + 1) // LEAST_ROWS)
        self.row_bytes = sum(self.row.values()) + slack

    def bytes(self, rows: int) -> int:
        """Return the bytes of buffers for a chunk of rows, wherever they begin."""
        return max(rows, LEAST_ROWS) * self.row_bytes

    def buffers(self, rows: int, memory) -> "CardChunkBuffers":
        """Lay the buffers for chunks of up to `rows` rows over device memory uint8 [bytes(rows) or more]."""
        return CardChunkBuffers(self, rows, memory)


def _attention(c: ModelConfig, context: int) -> dict[str, int]:
    """Gated delta nets and attention layers."""
    floats = {
        "gdn w": c.ssm_channels, "gdn u": c.ssm_channels, "gdn g": c.n_ssm_v_heads, "gdn beta": c.n_ssm_v_heads, "gdn z": c.ssm_inner,
        "gdn alpha": c.n_ssm_v_heads, "gdn beta logits": c.n_ssm_v_heads, "gdn gated": c.ssm_inner, "gdn o": c.ssm_inner,
        "qsa q": c.q_gate_width, "qsa k": c.kv_width, "qsa v": c.kv_width, "indexer q": c.indexer_width, "indexer k": c.indexer_dim,
        "indexer queries": c.indexer_width, "queries": c.attention_width, "attended": c.attention_width, "qsa gated": c.attention_width,
        "block output": c.hidden,
    }
    selected = {"scores": context // c.indexer_block, "cells": c.selection_width, "counts": 1} if context > c.selection_width else {}
    return {
        **{name: FLOAT * n for name, n in floats.items()}, **{name: WORD * n for name, n in selected.items()},
        **_coded("gdn codes", c.ssm_inner), **_coded("qsa codes", c.attention_width),
    }


def _streams(c: ModelConfig) -> dict[str, int]:
    floats = {
        "residual": c.residual_width, "normed": c.residual_width, "mixed gate": c.residual_width, "mixed low": c.low_rank, "mixed": c.hidden,
        "inject attention": c.n_streams, "inject moe": c.n_streams,
    }
    return {**{name: FLOAT * n for name, n in floats.items()}, **_coded("mixed codes", c.hidden)}


def _experts(c: ModelConfig) -> dict[str, int]:
    k = c.n_used
    widest = max(k * c.expert_ff, c.shared_ff)
    floats = {
        "router": c.n_experts, "router weights": k, "shared gate": 1, "experts gate": widest, "experts up": widest, "expert outputs": (k + 1) * c.hidden,
    }
    return {
        **{name: FLOAT * n for name, n in floats.items()}, "ids": WORD * k, "entry of": WORD * k, "tier entry of": WORD * k,
        **_coded("experts codes", c.expert_ff, k + 1), **_coded("shared codes", c.shared_ff),
    }


def _ngrams(c: ModelConfig) -> dict[str, int]:
    wide, width = c.residual_width, c.ple_width
    floats = {"ngram embedding": width, "ngram key": wide, "ngram value": c.hidden, "ngram gated": wide, "ngram conv rows": wide}
    return {"ngram rows": LONG * c.n_ple_heads, **{name: FLOAT * n for name, n in floats.items()}, **_coded("ngram codes", width)}


def _coded(name: str, width: int, rows: int = 1) -> dict[str, int]:
    """The arrays of coded rows of a width, `rows` of them for each of the chunk's."""
    return {f"{name} {part}": rows * -(-width // per) * np.dtype(dtype).itemsize for part, dtype, per in CODED}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a buffer lies in the memory, in bytes."""

    first: int
    n_bytes: int


class CardChunkBuffers:
    """Buffers for chunks of up to `rows` rows in device memory; two over the same memory with as many rows are alike (`key`)."""

    def __init__(self, layout: CardChunkLayout, rows: int, memory) -> None:
        self.rows, self._memory, self._places = rows, memory, {}
        address = address_of(memory)
        self.key = address, rows
        at = -address % ALIGNMENT
        for name, row_bytes in layout.row.items():
            self._places[name] = Place(at, rows * row_bytes)
            at += -(-rows * row_bytes // ALIGNMENT) * ALIGNMENT
        self.n_bytes = at

    def take(self, name: str, n_values: int, dtype):
        """Return the named buffer as a flat array of n_values at least; None where there is no such buffer, or it is shorter."""
        place = self._places.get(name)
        if place is None or n_values * np.dtype(dtype).itemsize > place.n_bytes:
            return None
        return self._memory[place.first : place.first + place.n_bytes].view(dtype)


def address_of(array) -> int:
    """Return where a device array begins; in the simulator, where its stand-in does."""
    plain = getattr(array, "_ary", None)
    return int(plain.ctypes.data if plain is not None else array.device_ctypes_pointer.value)


class ChunkWorkspace(Workspace):
    """The workspace of prompt chunks: what `region` has lies there, everything else in a stage's own workspace."""

    def __init__(self, own: Workspace, region: CardChunkBuffers) -> None:
        self._own, self.region = own, region
        self.device, self.purpose = own.device, own.purpose

    @property
    def generation(self) -> int:
        """Counts what moved in the stage's own workspace; what lies in the region stays where it is."""
        return self._own.generation

    def get(self, name: str, n_values: int, dtype=np.float32):
        """Return a flat buffer of n_values at least."""
        array = self.region.take(name, n_values, dtype)
        return self._own.get(name, n_values, dtype) if array is None else array

    def coded(self, name: str, n_rows: int, n: int) -> Coded:
        """Return coded activations for n_rows rows of n values at least."""
        arrays = [self.region.take(f"{name} {part}", n_rows * n // per, dtype) for part, dtype, per in CODED]
        if any(array is None for array in arrays):
            return self._own.coded(name, n_rows, n)
        return Coded(*arrays, n_rows, n)

    def lists(self, name: str, n_experts: int, n_entries: int):
        return self._own.lists(name, n_experts, n_entries)

    def constant(self, name: str, values: np.ndarray):
        return self._own.constant(name, values)

    def close(self) -> None:
        """Drop nothing: the memory is lent, and the stage's own workspace is closed by itself."""
