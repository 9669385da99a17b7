"""Prompt chunks of a card in given memory: the layout holds what a chunk asks for, nothing leaves it, programs outlive a loan."""

from dataclasses import replace

import pytest

from strata.cuda.card.compiling import why_no_compiler
from tests.gpu.geometry import SMALL, TOY

REASON = why_no_compiler()
pytestmark = [pytest.mark.ptx, pytest.mark.skipif(REASON is not None, reason=str(REASON))]
CONTEXT = 1024
ROWS = (9, 31, 64, 100)
SMALL_BYTES = 1 << 16
"""What a chunk may take beside its buffers: lists and constants."""


def stage(config, experts="Q4_K"):
    from strata.bench.gpu.specs import Writer
    from strata.bench.gpu.stage import placer_of
    from strata.cuda.card.blueprint import Blueprint
    from strata.cuda.memory.placed import place_stage
    from strata.cuda.stage.executor import CudaExecutor
    from strata.numerics.rounding import mode_named

    class Nothing:
        seed = 0

        def fill(self, raw, type_name):
            """Leave the array as it is."""

    device = Blueprint((9, 0))
    weights = Writer(config, "Q4_K", experts, "Q6_K").weights()
    placed = place_stage(device, weights, config, 0, config.n_layers, placer_of(Nothing()))
    return CudaExecutor(device, config, placed, mode_named("canonical"), "f16", 2, CONTEXT)


def read(executor, n_rows, start=0, n_logits=1):
    from strata.rows import Segment, Window
    from strata.windows.stage_pass import pass_blocks

    executor.run_window(Window.of([Segment(0, start, (1,) * n_rows, n_logits)], True, is_prompt=n_rows > 8), None, pass_blocks)


def lend(executor, rows):
    from strata.cuda.memory.chunk_buffers import CardChunkLayout

    layout = CardChunkLayout(executor.config, executor.context)
    memory = executor.device.empty("lent", layout.bytes(rows), "uint8")
    return layout.buffers(rows, memory)


@pytest.mark.parametrize("config", [replace(SMALL, n_layers=4), replace(TOY, n_layers=4), replace(SMALL, n_layers=4, shared_ff=128)], ids=["small", "toy", "other-shared"])
@pytest.mark.parametrize("rows", ROWS)
def test_everything_that_is_as_long_as_a_chunk_lies_in_the_buffers(config, rows):
    executor = stage(config)
    executor.chunk_buffers = buffers = lend(executor, rows)
    before = {name: n for name, n in executor.device.taken.items() if name.startswith("buffers")}
    read(executor, rows, 0)
    read(executor, rows, CONTEXT - rows)
    taken = {name: n for name, n in executor.device.taken.items() if name.startswith("buffers") and n != before.get(name)}
    beside = {name: n for name, n in taken.items() if not any(part in name for part in ("head ", "logits", "tops", "totals", "triples", "lists"))}
    assert all(n <= 4 * 1024 + 64 * rows for n in beside.values()), beside
    assert buffers.n_bytes <= buffers_layout(executor).bytes(rows)


def buffers_layout(executor):
    from strata.cuda.memory.chunk_buffers import CardChunkLayout

    return CardChunkLayout(executor.config, executor.context)


def test_no_two_buffers_overlap_and_none_leaves_the_memory():
    executor = stage(replace(SMALL, n_layers=4))
    buffers = lend(executor, 100)
    spans = sorted((place.first, place.first + place.n_bytes) for place in buffers._places.values())
    assert all(end <= first for (_, end), (first, _) in zip(spans, spans[1:], strict=False))
    assert spans[-1][1] <= buffers._memory.size
    assert all((buffers.key[0] + first) % 512 == 0 for first, _ in spans)


def test_decode_windows_keep_buffers_of_their_own():
    executor = stage(replace(SMALL, n_layers=4))
    read(executor, 1)
    decode = {key: program for key, program in executor.programs.by_key.items() if key[1] <= 8}
    executor.chunk_buffers = lend(executor, 64)
    read(executor, 64)
    assert {key: program for key, program in executor.programs.by_key.items() if key[1] <= 8} == decode
    region = range(executor.chunk_buffers.key[0], executor.chunk_buffers.key[0] + executor.chunk_buffers._memory.size)
    wide, = [program for key, program in executor.programs.by_key.items() if key[1] == 64]
    assert wide.residual.device_ctypes_pointer.value in region
    assert all(program.residual.device_ctypes_pointer.value not in region for program in decode.values())


def test_a_loan_of_the_same_memory_finds_its_programs_again_and_another_does_not():
    from strata.cuda.memory.chunk_buffers import CardChunkBuffers

    executor = stage(replace(SMALL, n_layers=4))
    first = executor.chunk_buffers = lend(executor, 64)
    read(executor, 64)
    program, = executor.programs.by_key.values()
    executor.chunk_buffers = None
    read(executor, 2)
    executor.chunk_buffers = CardChunkBuffers(buffers_layout(executor), 64, first._memory)
    read(executor, 64)
    assert program in executor.programs.by_key.values()
    executor.chunk_buffers = lend(executor, 64)
    read(executor, 64)
    assert program not in executor.programs.by_key.values()


@pytest.mark.parametrize("rows", [9, 10, 17, 255, 256, 2048])
def test_rows_times_their_bytes_suffice_wherever_the_memory_begins(rows):
    from strata.cuda.memory.chunk_buffers import CardChunkLayout

    class Memory:
        def __init__(self, address):
            import ctypes

            self.device_ctypes_pointer = ctypes.c_void_p(address)

    for context in (64, CONTEXT, 1 << 18):
        layout = CardChunkLayout(SMALL, context)
        for address in (512, 513, 528, 1023):
            assert layout.buffers(rows, Memory(address)).n_bytes <= layout.bytes(rows) == rows * layout.row_bytes
