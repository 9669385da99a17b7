"""What the expert tier's kernels say to the memory that a card shares with the CPU, and that a model's kernels are known ahead."""

import re
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from strata.cuda.card.compiling import compile_ptx, why_no_compiler

REASON = why_no_compiler()
pytestmark = [pytest.mark.ptx, pytest.mark.skipif(REASON is not None, reason=str(REASON))]
CAPABILITY = (9, 0)


def ptx_of(name: str) -> str:
    """Return the PTX of one of the catalogue's kernels."""
    from strata.cuda.machine.seam import target_of
    from tests.ptx.operations import expert_tier

    (entry,) = (entry for entry in expert_tier() if entry.name == name)
    return compile_ptx(entry.build(target_of(CAPABILITY)), entry.signature, CAPABILITY)


def at(pattern: str, ptx: str) -> list[int]:
    """Return where a pattern stands, as offsets."""
    return [found.start() for found in re.finditer(pattern, ptx)]


def test_a_message_is_fenced_and_its_flag_released_last():
    ptx = ptx_of("dispatch 256 threads real")
    fences, flags = at(r"membar\.sys|fence\.\w+\.sys", ptx), at(r"st\.release\.sys\.global\.u32", ptx)
    assert len(flags) == 1 and fences and max(fences) < flags[0]
    assert at(r"griddepcontrol\.wait", ptx)[0] < min(at(r"ld\.global", ptx))


def test_a_meeting_acquires_the_answer_before_it_reads_the_outputs_and_none_of_them_from_a_stale_cache():
    ptx = ptx_of("meet")
    acquires, reads, meets = at(r"ld\.acquire\.sys\.global\.u32", ptx), at(r"ld\.(global\.)?v4\.\w+|ld\.global\.v4", ptx), at(r"bar(rier)?\.(cta\.)?sync", ptx)
    assert len(acquires) >= 2 and len(reads) >= 4 and meets
    assert max(acquires) < meets[0] < min(reads)
    assert "globaltimer" in ptx and "nanosleep.u32" in ptx and ".nc." not in ptx
    assert len(at(r"st\.release\.sys\.global\.u32", ptx)) == 1


def test_a_fetch_reads_sixteen_bytes_at_a_time_by_address():
    ptx = ptx_of("fetch")
    n_loads, n_stores = len(at(r"ld\.global\.v4", ptx)), len(at(r"st\.global\.v4", ptx))
    assert n_loads == n_stores >= 12 and not at(r"ld\.global\.u8|st\.global\.u8", ptx) and ".nc." not in ptx


def test_a_models_kernels_with_a_tier_are_known_ahead():
    from strata.cli.engine_flags import FIXTURE
    from strata.cuda.card.blueprint import Blueprint
    from strata.cuda.memory.placed import place_stage
    from strata.cuda.stage.executor import CudaExecutor
    from strata.cuda.tier.expert_cache import CACHE, RING, CardExpertMemory
    from strata.experts.residency import Residency
    from strata.host.placed import place_stage as on_host
    from strata.model.model import load_model
    from strata.numerics.rounding import mode_named
    from strata.rows import Segment, Window
    from strata.split.kernel_plan import needed_kernels
    from strata.windows.stage_pass import pass_blocks

    model = load_model(FIXTURE)
    config = model.config
    planned = set(needed_kernels(model.weights, config, CAPABILITY, ("f16",), 4, config.context_length, 512))
    device, first = Blueprint(CAPABILITY), 3
    placed = place_stage(device, model.weights, config, first, config.n_layers, routed=False)
    with_banks = Blueprint(CAPABILITY)
    place_stage(with_banks, model.weights, config, first, config.n_layers)
    shapes = {layer.index: layer.moe for layer in on_host(model.weights, config, first, config.n_layers).layers}
    away = sum(getattr(moe, part).expert_bytes for moe in shapes.values() for part in ("gate", "up", "down")) * config.n_experts
    assert with_banks.taken.keys() == device.taken.keys() and sum(with_banks.taken.values()) - sum(device.taken.values()) == away
    memory = CardExpertMemory(device, shapes, 5, 2, None)
    assert (device.taken[CACHE], device.taken[RING]) == (5 * memory.slot_bytes, 2 * memory.slot_bytes)
    executor = CudaExecutor(device, config, placed, mode_named("canonical"), "f16", 4, config.context_length)
    shape = (config.n_layers, config.n_experts)
    executor.tier = SimpleNamespace(memory=memory, residency=Residency(*shape, 5), share=128, sources=np.zeros((*shape, 3), np.int64), sources_version=0)
    for segments, keep in ((((0, 7, 1),), True), (((0, 300, 57),), True), (((0, 5, 1), (3, 80, 2)), False), (((2, 70, 5),), False)):
        window = Window.of([Segment(slot, start, (0,) * n) for slot, start, n in segments], keep)
        launches = executor.record(window, False, pass_blocks)
        names = [launch.dispatcher.py_func.__qualname__.split(".")[0] for launch in launches]
        n_layers = config.n_layers - first
        assert [names.count(name) for name in ("dispatch_kernel", "fetch_kernel", "meet_kernel")] == [n_layers] * 3
    assert device.needed and set(device.needed) <= planned


def test_counts_of_routing_without_a_tier_take_a_launch_a_layer_that_is_known_ahead():
    from strata.cli.engine_flags import FIXTURE
    from strata.cuda.card.blueprint import Blueprint
    from strata.cuda.memory.placed import place_stage
    from strata.cuda.stage.executor import CudaExecutor
    from strata.experts.usage import new_counts
    from strata.model.model import load_model
    from strata.numerics.rounding import mode_named
    from strata.rows import Segment, Window
    from strata.split.kernel_plan import needed_kernels
    from strata.windows.stage_pass import pass_blocks

    model = load_model(FIXTURE)
    config, device = model.config, Blueprint(CAPABILITY)
    planned = set(needed_kernels(model.weights, config, CAPABILITY, ("f16",), 1, 64, 8))
    executor = CudaExecutor(device, config, place_stage(device, model.weights, config, 0, config.n_layers), mode_named("canonical"), "f16", 1, 64)
    executor.routed = new_counts(config.n_layers, config.n_experts)
    launches = executor.record(Window.of([Segment(0, 0, (0,) * 3)], True), True, pass_blocks)
    assert [launch.dispatcher.py_func.__qualname__.split(".")[0] for launch in launches].count("log_kernel") == config.n_layers
    assert set(device.needed) <= planned


def test_messages_are_taken_in_the_order_of_layers_and_those_without_jobs_passed():
    from strata.cuda.tier.mailbox import FIELDS, FLAG
    from strata.cuda.tier.meeting import await_message

    headers = np.zeros(4 * FIELDS, np.int32)
    for place, flag in enumerate((2 * 5, 2 * 5 + 1, 2 * 4 + 1, 2 * 5 + 1)):
        headers[place * FIELDS + FLAG] = flag
    moment = 10**6
    assert await_message(headers, 0, 4, 5, moment) == 1 and await_message(headers, 1, 2, 5, moment) == 1
    assert await_message(headers, 0, 1, 5, moment) == 1, "no jobs: the end"
    assert await_message(headers, 2, 4, 5, moment) == -1 - 2, "an old step is not this window's"
    assert await_message(headers, 3, 4, 5, moment) == 3


def test_a_flag_carries_what_was_written_before_it():
    from strata.cuda.tier.mailbox import FIELDS, FLAG, N_JOBS
    from strata.cuda.tier.meeting import answer, await_message

    headers = np.zeros(2 * FIELDS, np.int32)
    await_message(headers, 0, 1, 1, 1)
    answer(np.zeros(1, np.int32), 0, 1)

    def write():
        for step in range(1, 2000):
            while headers[FIELDS + FLAG] != step - 1:
                pass
            headers[N_JOBS] = 3 * step
            answer(headers, FLAG, 2 * step + 1)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        for step in range(1, 2000):
            assert await_message(headers, 0, 1, step, 10**10) == 0 and headers[N_JOBS] == 3 * step
            answer(headers, FIELDS + FLAG, step)
        writing.result(10)
