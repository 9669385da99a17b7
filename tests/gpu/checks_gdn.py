"""The gated delta net's operations on a card against the host: prepare, scan, finish, tails, replay."""

import numpy as np

from strata.host import gdn as host
from strata.model.config import ModelConfig
from strata.rows import Window
from tests.gpu.geometry import CodedOutput, flat, normal, read, run, tables_of
from tests.gpu.support import GuardedOutput, assert_same_bits, random_rows

N_SLOTS = 6
NO_HASHES = np.empty((0, 1, 2), np.uint64)


def small_memory(seed: int, window: Window, *shape: int) -> np.ndarray:
    """Memory with entries around 2^-100, which an update turns into +0; slots outside the window hold NaN."""
    memory = normal(seed, *shape) * np.float32(0.1)
    memory[:, :, :, ::5] *= np.float32(2.0**-99)
    memory[foreign(window)] = np.nan
    return memory


def foreign(window: Window) -> list[int]:
    """Slots that the window does not have."""
    return sorted(set(range(N_SLOTS)) - {s.slot for s in window.segments})


def rows_with_a_poisoned_segment(seed: int, window: Window, n: int) -> np.ndarray:
    """Rows of mixed sizes; the second segment's (where there are two) hold infinities, NaN and huge values too."""
    x = normal(seed, window.n_rows, n) * np.exp2(np.random.default_rng(seed).integers(-3, 3, (window.n_rows, 1))).astype(np.float32)
    for i, row in enumerate(np.flatnonzero(window.segment_of_row == 1)):
        x[row, (7 * i) % n] = (np.inf, np.nan, np.float32(3e38))[i % 3]
    return x


class GdnInputs:
    """Inputs of a window on the host, and what the host makes of them."""

    def __init__(self, config: ModelConfig, control: np.ndarray, window: Window, seed: int) -> None:
        c, w = config, window
        n, size, heads = w.n_rows, c.ssm_state, c.n_ssm_v_heads
        self.config, self.window, self.control = c, w, control
        self.read_scale = np.float32(1) / np.sqrt(np.float32(size))
        self.u = rows_with_a_poisoned_segment(seed, w, c.ssm_channels)
        self.alpha, self.beta_logits = normal(seed + 1, n, heads) * 3, normal(seed + 2, n, heads)
        self.tail = normal(seed + 3, N_SLOTS, c.conv_taps - 1, c.ssm_channels)
        self.tail[foreign(w)] = np.nan
        self.conv, self.bias = normal(seed + 4, c.ssm_channels, c.conv_taps), normal(seed + 5, heads)
        self.decay, self.weight = -np.abs(normal(seed + 6, heads)), normal(seed + 7, size)
        self.memory, self.z = small_memory(seed + 8, w, N_SLOTS, heads, size, size), random_rows(seed + 9, n, c.ssm_inner)
        self.g, self.beta, self.w = np.empty((n, heads), np.float32), np.empty((n, heads), np.float32), np.empty_like(self.u)
        host.gates(self.alpha, self.beta_logits, self.bias, self.decay, self.g, self.beta)
        host.convolve(control, self.u, self.tail, self.conv, w.segment_of_row, w.first, w.segment_slot, self.w)
        host.normalise_heads(self.w, 2 * c.n_ssm_qk_heads, size, np.float32(c.rms_epsilon))
        self.kept_memory, self.kept_tail = self.memory.copy(), self.tail.copy()
        self.o, self.gated = np.empty((n, c.ssm_inner), np.float32), np.empty((n, c.ssm_inner), np.float32)
        host.scan(
            control, self.w, self.g, self.beta, self.kept_memory, w.first, w.count, w.segment_slot, w.keep, c.n_ssm_qk_heads,
            self.read_scale, self.o, NO_HASHES,
        )
        if w.keep:
            host.keep_tail(self.u, self.kept_tail, w.first, w.segment_slot, w.count)
        host.gate_norm(self.o, self.z, self.weight, np.float32(c.rms_epsilon), self.gated)


def check_window(card, control, config: ModelConfig, window: Window, seed: int, n_held: int = 0) -> GdnInputs:
    """A window's whole way: convolution, gates, scan, output gate, kept state; surplus segments and foreign slots untouched.

    `n_held` v heads a thread where the rows are scanned as a chunk's, 0: as the launch chooses.
    """
    from strata.cuda.delta_net.chunk_scan import launch_any_scan
    from strata.cuda.delta_net.gdn import launch_prepare

    c, n, x = config, window.n_rows, GdnInputs(config, control, window, seed)
    tables, what = tables_of(card, window), f"{n} rows in {len(window.segments)} segments"
    w, g, beta = (GuardedOutput(card, a.size) for a in (x.w, x.g, x.beta))
    u, tail, memory = flat(card, x.u), flat(card, x.tail), flat(card, x.memory)
    small = [flat(card, a) for a in (x.conv, x.bias, x.decay)]
    run(card, launch_prepare(card, c, tables, u, flat(card, x.alpha), flat(card, x.beta_logits), tail, *small, w.inside, g.inside, beta.inside))
    assert_same_bits(f"w, {what}", w.read(x.w.shape), x.w)
    assert_same_bits(f"g, {what}", g.read(x.g.shape), x.g)
    assert_same_bits(f"beta, {what}", beta.read(x.beta.shape), x.beta)
    o, gated, coded = GuardedOutput(card, x.o.size), GuardedOutput(card, x.o.size), CodedOutput(card, n, c.ssm_inner)
    launches = launch_any_scan(
        card, c, tables, window.keep, w.inside, g.inside, beta.inside, u, memory, tail, N_SLOTS, x.read_scale, o.inside, flat(card, x.z),
        flat(card, x.weight), gated.inside, coded.coded, n_held=n_held,
    )
    run(card, launches)
    assert_same_bits(f"scan, {what}", o.read(x.o.shape), x.o)
    assert_same_bits(f"gated, {what}", gated.read(x.o.shape), x.gated)
    coded.check(f"gated, {what}", control, x.gated)
    assert_same_bits(f"memory, {what}", read(memory, *x.memory.shape), x.kept_memory)
    assert_same_bits(f"tail, {what}", read(tail, *x.tail.shape), x.kept_tail)
    return x


def check_window_scan(card, control, config: ModelConfig, window: Window, seed: int, n_at_once: int = 0) -> None:
    """A decode window's way in one kernel, twice (its counters must be 0 again): results, kept state, what a replay needs.

    `n_at_once` heads on a multiprocessor, 0: as the launch chooses.
    """
    from strata.cuda.delta_net.window_scan import launch_window_scan

    c, n, x = config, window.n_rows, GdnInputs(config, control, window, seed)
    tables, what = tables_of(card, window), f"{n} rows in {len(window.segments)} segments, keep={window.keep}, {n_at_once} at once"
    u, alpha, logits, z, weight = (flat(card, a) for a in (x.u, x.alpha, x.beta_logits, x.z, x.weight))
    small, counters = [flat(card, a) for a in (x.conv, x.bias, x.decay)], card.zeros("counters", 8 * c.n_ssm_qk_heads, np.int32)
    for turn in range(2):
        tail, memory = flat(card, x.tail), flat(card, x.memory)
        w, g, beta = (GuardedOutput(card, a.size) for a in (x.w, x.g, x.beta))
        gated, coded = GuardedOutput(card, x.o.size), CodedOutput(card, n, c.ssm_inner)
        launch = launch_window_scan(
            card, c, tables, window.keep, u, alpha, logits, tail, *small, memory, x.read_scale, z, weight, counters, w.inside, g.inside,
            beta.inside, gated.inside, coded.coded, n_at_once=n_at_once,
        )
        run(card, launch)
        assert_same_bits(f"gated, {what}, turn {turn}", gated.read(x.o.shape), x.gated)
        coded.check(f"gated, {what}", control, x.gated)
        assert_same_bits(f"memory, {what}", read(memory, *x.memory.shape), x.kept_memory)
        assert_same_bits(f"tail, {what}", read(tail, *x.tail.shape), x.kept_tail)
        for name, got, wanted in (("w", w, x.w), ("g", g, x.g), ("beta", beta, x.beta)):
            values = got.read(wanted.shape)
            if not window.keep:
                assert_same_bits(f"{name}, {what}", values, wanted)
        assert not counters.copy_to_host().any(), "a counter was not set back"


def check_replay(card, control, config: ModelConfig, window: Window, kept: list[int], n_layers: int) -> None:
    """A verify window's memory stays; the replay of kept rows, all layers at once, gives the host's memory and tail."""
    from strata.cuda.delta_net.scan import launch_commit

    c, first_slot = config, window.segment_slot
    layers = [check_window(card, control, c, window, 100 + 20 * layer) for layer in range(n_layers)]
    assert all(np.array_equal(x.memory, x.kept_memory, equal_nan=True) for x in layers)
    tables, numbers = tables_of(card, window), np.array(kept, np.int32)
    spare = tables.n_segments - len(kept)
    capacity = window.n_rows + 3

    def stacked(name):
        arrays = [getattr(x, name) for x in layers]
        padding = [(0, 3)] + [(0, 0)] * (arrays[0].ndim - 1)
        return flat(card, np.stack([np.pad(a, padding, constant_values=np.nan) for a in arrays]))

    memory, tail = flat(card, np.stack([x.memory for x in layers])), flat(card, np.stack([x.tail for x in layers]))
    launch = launch_commit(
        card, c, tables, flat(card, np.concatenate((numbers, np.zeros(spare, np.int32)))), stacked("w"), stacked("g"), stacked("beta"),
        stacked("u"), memory, tail, N_SLOTS, n_layers, capacity,
    )
    run(card, launch)
    for layer, x in enumerate(layers):
        wanted_memory, wanted_tail = x.memory.copy(), x.tail.copy()
        host.commit(x.w, x.g, x.beta, x.u, wanted_memory, wanted_tail, window.first, first_slot, numbers, c.n_ssm_qk_heads)
        assert_same_bits(f"replayed memory, layer {layer}", read(memory, n_layers, *x.memory.shape)[layer], wanted_memory)
        assert_same_bits(f"replayed tail, layer {layer}", read(tail, n_layers, *x.tail.shape)[layer], wanted_tail)
