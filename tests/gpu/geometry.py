"""Geometries and windows for tests of the CUDA operations: the real model's dimensions, the fixture's, and toys.

Used on a card (tests/gpu) and in the simulator (tests/sim).  Does not know: which kernels there are.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from strata.bench.gpu.geometry import REAL
from strata.model.config import ModelConfig
from strata.rows import Segment, Window

JUNK = 1 << 20
"""What surplus segment places hold: using it would leave every buffer."""

SMALL = ModelConfig(
    vocabulary=4096, context_length=4096, hidden=256, n_layers=12, rms_epsilon=1e-6, n_streams=4, low_rank=64, qsa_interval=4,
    n_q_heads=6, n_kv_heads=2, head_dim=64, rope_base=1e6, rope_dims=16, n_indexer_heads=2, indexer_dim=32, indexer_top_k=256,
    indexer_block=4, ssm_state=64, n_ssm_qk_heads=2, n_ssm_v_heads=6, conv_taps=4, n_experts=64, n_used=6, expert_ff=64, shared_ff=64,
    ple_layers=(1,), ple_ngram_size=3, ple_heads_per_ngram=4, ple_head_dim=32, ple_conv_taps=4, ple_dilation=3, ple_eos_token_id=4093,
    ple_multipliers=(23703573157769, 20109073645365, 8052911324071), ple_sizes=(20011, 20021, 20023, 20029, 20047, 20051, 20063, 20071),
    ple_offsets=(0, 20011, 40032, 60055, 80084, 100131, 120182, 140245), eos_token_id=4093, eot_token_id=4095, n_draft_layers=1,
    draft_token_ids=(),
)
"""The fixture's geometry."""
TOY = replace(
    SMALL, hidden=64, n_streams=2, low_rank=40, n_q_heads=3, n_kv_heads=1, n_indexer_heads=1, indexer_top_k=32, n_ssm_qk_heads=1,
    n_ssm_v_heads=2, n_experts=40, n_used=3, expert_ff=32,
)
"""Small enough for the simulator."""
GEOMETRIES = {"real": REAL, "small": SMALL}


def normal(seed: int, *shape: int) -> np.ndarray:
    """Return normal float32 values."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def window_of(*segments: tuple[int, int, int], keep: bool = True, vocabulary: int = 4096) -> Window:
    """Return a window of (slot, start, count) segments with tokens from a fixed seed."""
    tokens = np.random.default_rng(99).integers(0, vocabulary, sum(count for _, _, count in segments))
    made, at = [], 0
    for slot, start, count in segments:
        made.append(Segment(slot, start, tuple(int(t) for t in tokens[at : at + count])))
        at += count
    return Window.of(made, keep)


def single_rows(n_rows: int, starts: Sequence[int]) -> Window:
    """Return a window of n_rows rows, each a session of its own (slot = row)."""
    return window_of(*((row, int(starts[row]), 1) for row in range(n_rows)))


def tables_of(card, window: Window, spare: int = 2):
    """Upload a window's index arrays, with `spare` surplus segment places."""
    from strata.cuda.memory.window_tables import WindowTables

    def padded(values, filling):
        return card.upload("window", np.concatenate((values, np.full(spare, filling, np.int32))))

    rows = (card.upload("window", a) for a in (window.tokens, window.slots, window.positions, window.segment_of_row))
    return WindowTables(
        window.n_rows, len(window.segments) + spare, *rows, padded(window.first, JUNK), padded(window.count, 0), padded(window.segment_slot, JUNK)
    )


def flat(card, array: np.ndarray):
    """Upload an array as one dimension."""
    return card.upload("test", np.ascontiguousarray(array).reshape(-1))


def run(card, *launches) -> None:
    """Send launches and tuples of launches in order, and wait."""
    for launch in launches:
        for one in launch if isinstance(launch, tuple) else (launch,):
            one.go()
    card.synchronise()


def read(array, *shape: int) -> np.ndarray:
    """Copy a device array to the host in a shape."""
    return array.copy_to_host().reshape(shape)


class CodedOutput:
    """Coded rows to be filled by a kernel, and their comparison with the host's coding of the same float rows."""

    def __init__(self, card, n_rows: int, n: int) -> None:
        from strata.cuda.packed.products import make_coded

        self.coded, self.n_rows, self.n = make_coded(card, "coded", n_rows, n), n_rows, n

    def check(self, what: str, control: np.ndarray, values: np.ndarray) -> None:
        """Fail unless codes, turned codes, scales and sums are the host's for float32 values [n_rows, n]."""
        from tests.gpu.support import assert_same_bits, coded_on_host, turned

        wanted, c, shape = coded_on_host(control, values), self.coded, (self.n_rows, self.n)
        assert np.array_equal(read(c.codes, *shape), wanted.codes), f"{what}: codes"
        assert np.array_equal(read(c.turned, *shape), turned(wanted.codes)), f"{what}: turned codes"
        assert_same_bits(f"{what}: scales", read(c.scales, self.n_rows, self.n // 32), wanted.scales)
        assert np.array_equal(read(c.sums, self.n_rows, self.n // 32), wanted.sums), f"{what}: sums"
