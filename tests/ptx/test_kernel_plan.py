"""Nothing that the shipped model does on a card asks for a kernel that is not known ahead: windows drawn at random, in every setting."""

from types import SimpleNamespace

import numpy as np
import pytest

from strata.cuda.card.compiling import why_no_compiler

REASON = why_no_compiler()
pytestmark = [pytest.mark.ptx, pytest.mark.skipif(REASON is not None, reason=str(REASON))]
CAPABILITY, FORMATS = (9, 0), ("f16", "int8", "f32")
N_SLOTS, CONTEXT, CHUNK = 4, 2048, 512
N_WINDOWS = 12


@pytest.fixture(scope="module")
def model():
    from strata.cli.engine_flags import FIXTURE
    from strata.model.model import load_model

    return load_model(FIXTURE)


@pytest.fixture(scope="module")
def planned(model):
    from strata.split.kernel_plan import needed_kernels

    return set(needed_kernels(model.weights, model.config, CAPABILITY, FORMATS, N_SLOTS, CONTEXT, CHUNK))


def executor_of(model, kv="f16", first=0, last=None, routed=True):
    """Return an executor of layers first .. last - 1 on a blueprint of its own."""
    from strata.cuda.card.blueprint import Blueprint
    from strata.cuda.memory.placed import place_stage
    from strata.cuda.stage.executor import CudaExecutor
    from strata.numerics.rounding import mode_named

    device, c = Blueprint(CAPABILITY), model.config
    placed = place_stage(device, model.weights, c, first, last or c.n_layers, routed=routed)
    return CudaExecutor(device, c, placed, mode_named("canonical"), kv, N_SLOTS, CONTEXT)


def with_tier(executor, model, n_places):
    """Give an executor a tier of a few slots and ring places."""
    from strata.cuda.tier.expert_cache import CardExpertMemory
    from strata.experts.residency import Residency
    from strata.host.placed import place_stage

    c = model.config
    shapes = {layer.index: layer.moe for layer in place_stage(model.weights, c, 0, c.n_layers).layers}
    shape = (c.n_layers, c.n_experts)
    executor.tier = SimpleNamespace(
        memory=CardExpertMemory(executor.device, shapes, 7, n_places, None), residency=Residency(*shape, 7), share=100,
        sources=np.zeros((*shape, 3), np.int64), sources_version=0,
    )
    return executor


def drawn(seed: int):
    """Yield windows: decode and verify windows of one to all slots, chunks, kept or to be committed, one row's logits or all."""
    from strata.rows import Segment, Window

    draw = np.random.default_rng(seed)
    for number in range(N_WINDOWS):
        if number % 3 == 2:
            counts = [int(draw.integers(9, CHUNK + 1))]
        else:
            counts = np.ones(int(draw.integers(1, N_SLOTS + 1)), int) + draw.integers(0, 2, 1) * draw.integers(0, 2)
        segments = []
        for slot, n in enumerate(counts):
            start = int(draw.integers(0, (60, 300, CONTEXT - n)[int(draw.integers(3))]))
            segments.append(Segment(slot, start, (0,) * int(n), int(draw.choice([1, n]))))
        yield Window.of(segments, bool(number % 3 == 2 or draw.integers(2)), is_prompt=number % 3 == 2)


def record_all(executor, seed, is_first=True, watched=()):
    from strata.split.kernel_plan import record_observed
    from strata.windows.stage_pass import pass_blocks

    for window in drawn(seed):
        executor.record(window, is_first, pass_blocks)
        for points in watched:
            record_observed(executor, window, points)


def assert_planned(device, planned, least=30):
    lacking = [f"{kernel.py_func.__module__}.{kernel.py_func.__qualname__}" for kernel, types in device.needed if (kernel, types) not in planned]
    assert len(device.needed) > least and not lacking, lacking


@pytest.mark.parametrize("kv", FORMATS)
@pytest.mark.parametrize("cut", [None, 5])
def test_windows_of_whole_models_and_of_splits(model, planned, kv, cut):
    for first, last in ((0, None),) if cut is None else ((0, cut), (cut, None)):
        executor = executor_of(model, kv, first, last)
        record_all(executor, 1 + first, first == 0)
        assert_planned(executor.device, planned)


@pytest.mark.parametrize("kv", FORMATS)
def test_observed_windows_at_outlines_and_at_every_point(model, planned, kv):
    from strata.places import OUTLINES
    from strata.split.kernel_plan import EveryPoint

    executor = executor_of(model, kv)
    record_all(executor, 2, True, (OUTLINES, EveryPoint()))
    assert_planned(executor.device, planned, 60)


@pytest.mark.parametrize("n_places", [0, 3])
def test_a_tier_with_and_without_a_ring_observed_too(model, planned, n_places):
    from strata.split.kernel_plan import EveryPoint

    executor = with_tier(executor_of(model, routed=False), model, n_places)
    record_all(executor, 3, True, (EveryPoint(),))
    assert_planned(executor.device, planned, 60)
    names = {kernel.py_func.__qualname__.split(".")[0] for kernel, _ in executor.device.needed}
    assert {"dispatch_kernel", "meet_kernel"} <= names and ("fetch_kernel" in names) == bool(n_places)


@pytest.mark.parametrize(("n_rows", "is_ahead"), [(8, False), (9, True), (300, True)])
def test_experts_of_chunks_are_combined_by_a_launch_ahead_of_the_write_that_reads_them(model, n_rows, is_ahead):
    from strata.cuda.experts.combine import combine_kernel
    from strata.rows import Segment, Window
    from strata.windows.stage_pass import pass_blocks

    executor, c = executor_of(model), model.config
    combining = combine_kernel(c.hidden, c.n_used, executor.device.target)
    launches = executor.record(Window.of([Segment(0, 0, (0,) * n_rows, 1)], True, is_prompt=is_ahead), True, pass_blocks)
    combined = [n for n, launch in enumerate(launches) if launch.dispatcher is combining]
    assert len(combined) == (c.n_layers if is_ahead else 0)
    for n in combined:
        written = launches[n].arguments[-1]
        assert launches[n + 1].dispatcher.py_func.__qualname__.startswith("stream_kernel")
        assert launches[n + 1].arguments[1].device_ctypes_pointer.value == written.device_ctypes_pointer.value


def test_chunks_in_lent_memory_and_counts_of_routing(model, planned):
    from strata.cuda.memory.chunk_buffers import CardChunkLayout
    from strata.experts.usage import new_counts

    executor = executor_of(model)
    executor.routed = new_counts(model.config.n_layers, model.config.n_experts)
    layout = CardChunkLayout(model.config, CONTEXT)
    executor.chunk_buffers = layout.buffers(CHUNK, executor.device.empty("lent", layout.bytes(CHUNK), np.uint8))
    record_all(executor, 4)
    assert_planned(executor.device, planned)


@pytest.mark.parametrize("kv", FORMATS)
def test_drafts_of_any_slots_chained_and_at_any_length(model, planned, kv):
    from strata.cuda.drafting.draft_layer import CudaDrafts
    from strata.cuda.drafting.placed_drafts import place_drafts
    from strata.rows import KeptRows, Segment, Window

    executor = executor_of(model, kv, 10)
    device, c = executor.device, model.config
    device.needed.clear()
    drafts = CudaDrafts(device, c, place_drafts(device, model.weights, c, executor.placed), kv, N_SLOTS, CONTEXT, executor.table)
    starts, draw = np.zeros(N_SLOTS, int), np.random.default_rng(5)
    for turn in range(N_WINDOWS):
        counts = draw.integers(1, 5, N_SLOTS) if turn else np.full(N_SLOTS, 1)
        if turn % 3 == 2:
            counts[0] = draw.integers(100, 500)
        window = Window.of([Segment(slot, int(starts[slot]), (0,) * int(n)) for slot, n in enumerate(counts)], True, True)
        drafts.hold(window, device.empty("residual", window.n_rows * c.residual_width, np.float32))
        drafts.build([KeptRows(window, counts.astype(np.int32), tuple((0,) * int(n) for n in counts))])
        starts += counts
        slots = range(int(draw.integers(1, N_SLOTS + 1)))
        drafts.propose(slots, list(drafts.propose(slots).tokens))
    assert_planned(device, planned, 20)
