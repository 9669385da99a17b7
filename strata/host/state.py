"""The sessions' state of one layer on the host: arrays over slots.

Recurrent state (gated delta net memory and convolution tail, n-gram tail and token history) moves with the kept rows.
Attention cells, raw and pooled indexer keys are indexed by position: a rejected row's cells are simply written again.
Does not know: operations.
"""

from dataclasses import dataclass, fields

import numpy as np

from strata.host.cells import cell_format
from strata.model.config import ModelConfig


@dataclass(frozen=True, slots=True, eq=False)
class GdnState:
    """memory float32 [slots, v_heads, S, S]; tail float32 [slots, taps-1, channels]."""

    memory: np.ndarray
    tail: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class QsaState:
    """K/V codes [slots, cells, kv_heads, D] and scales; raw indexer keys [slots, cells, 1, Di]; pooled float32 [slots, blocks, Di]."""

    k_codes: np.ndarray
    k_scales: np.ndarray
    v_codes: np.ndarray
    v_scales: np.ndarray
    raw: np.ndarray
    raw_scales: np.ndarray
    pooled: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class NgramState:
    """tail float32 [slots, history, C*H]; tokens int32 [slots, 2], latest first, -1 where there is none."""

    tail: np.ndarray
    tokens: np.ndarray


LayerState = GdnState | QsaState | NgramState


def gdn_state(config: ModelConfig, n_slots: int) -> GdnState:
    size = config.ssm_state
    return GdnState(
        memory=np.zeros((n_slots, config.n_ssm_v_heads, size, size), np.float32),
        tail=np.zeros((n_slots, config.conv_taps - 1, config.ssm_channels), np.float32),
    )


def qsa_state(config: ModelConfig, n_slots: int, context: int, kv: str, raw_format: str) -> QsaState:
    form, raw = cell_format(kv), cell_format(raw_format)
    cells = (n_slots, context, config.n_kv_heads)
    scales = (*cells, form.n_scales(config.head_dim))
    return QsaState(
        k_codes=np.zeros((*cells, config.head_dim), form.code_type),
        k_scales=np.zeros(scales, np.uint16),
        v_codes=np.zeros((*cells, config.head_dim), form.code_type),
        v_scales=np.zeros(scales, np.uint16),
        raw=np.zeros((n_slots, context, 1, config.indexer_dim), raw.code_type),
        raw_scales=np.zeros((n_slots, context, 1, 0), np.uint16),
        pooled=np.zeros((n_slots, context // config.indexer_block + 1, config.indexer_dim), np.float32),
    )


def ngram_state(config: ModelConfig, n_slots: int) -> NgramState:
    return NgramState(
        tail=np.zeros((n_slots, config.ple_history, config.residual_width), np.float32),
        tokens=np.full((n_slots, 2), -1, np.int32),
    )


def state_bytes(state: LayerState) -> int:
    """Bytes of a layer's state over all slots."""
    return sum(getattr(state, field.name).nbytes for field in fields(state))


def clear(state: LayerState, slot: int) -> None:
    """Make a slot's recurrent state new; cells need no clearing, nothing reads past a session's position."""
    if isinstance(state, GdnState):
        state.memory[slot], state.tail[slot] = 0, 0
    elif isinstance(state, NgramState):
        state.tail[slot], state.tokens[slot] = 0, -1


def copy_slot(state: LayerState, source: int, target: int) -> None:
    """Copy everything of one slot to another."""
    for field in fields(state):
        array = getattr(state, field.name)
        array[target] = array[source]


def poison(state: QsaState, slot: int, from_position: int, block: int) -> None:
    """Fill the cells from a position on with NaN (codes: the largest), to prove that nothing reads them."""
    for name in ("k_codes", "v_codes", "raw"):
        array = getattr(state, name)
        array[slot, from_position:] = np.nan if array.dtype == np.float32 else (0x7E00 if array.dtype == np.uint16 else 127)
    state.k_scales[slot, from_position:], state.v_scales[slot, from_position:] = 0x7E00, 0x7E00
    state.pooled[slot, from_position // block :] = np.nan
