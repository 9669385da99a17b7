"""Memory, launches and graphs of a card."""

import gc

import numpy as np
import pytest

from strata.errors import DeviceError, DeviceMemoryError
from strata.formats.table import FORMATS
from tests.gpu.support import assert_same_bits, coded_on_host, dense_on_host, packed_weights, random_rows


def test_a_card_that_is_not_there_is_refused_with_the_reason():
    from strata.cuda.card.device import CudaDevice

    with pytest.raises(DeviceError, match="cards"):
        CudaDevice(99)


def test_running_out_of_memory_names_what_was_asked_for_and_takes_nothing(card):
    card.memory()
    before = dict(card.taken)
    with pytest.raises(DeviceMemoryError) as caught:
        card.empty("a buffer as large as two cards", 2 * card.card.total_bytes, np.uint8)
    assert caught.value.asked_bytes >= 2 * card.card.total_bytes and caught.value.free_bytes > 0
    assert card.taken == before


def test_predicted_and_reported_memory_agree_and_nothing_leaks():
    """A driver keeps some freed pages for a while (1 to 7 of 40 arrays, measured), so what it reports may go up and down, and must not only go up."""
    from strata.cuda.card.device import CudaDevice
    from strata.cuda.card.small_arrays import PAGE_BYTES

    device, reports = CudaDevice(0), []
    for _ in range(8):
        arrays = [device.empty("arrays", 3_000_000 + 4096 * i, np.float32) for i in range(40)]
        memory = device.memory()
        assert reports or abs(memory.taken_bytes - memory.reported_bytes) <= 0.03 * memory.reported_bytes
        most = memory.taken_bytes
        del arrays
        gc.collect()
        device.give_back("arrays")
        for _ in range(125):
            device.zeros("session", 50_000, np.float32)
            device.give_back("session")
        gc.collect()
        assert device.memory().taken_bytes <= PAGE_BYTES
        reports.append(device.memory().reported_bytes)
    print("reported after each round", [f"{n:,}" for n in reports])
    assert min(reports[4:]) <= max(reports[:4]) and max(reports) <= most // 4
    device.close()


def test_small_arrays_lie_apart_and_are_accounted_to_the_byte():
    from strata.cuda.card.device import CudaDevice
    from strata.cuda.card.small_arrays import PAGE_BYTES, SHARED_PAGES

    device, generator = CudaDevice(0), np.random.default_rng(5)
    sizes = generator.integers(1, 1 << 20, 300)
    values = [generator.integers(0, 256, n, np.uint8) for n in sizes]
    arrays = [device.upload(f"small {i % 3}", one) for i, one in enumerate(values)]
    for i in range(0, 300, 2):
        arrays[i] = None
    for i in range(0, 300, 4):
        arrays[i] = device.upload(f"small {i % 3}", values[i])
    memory = device.memory()
    print(f"predicted {memory.taken_bytes:,} reported {memory.reported_bytes:,} shared pages {device.taken[SHARED_PAGES]:,}")
    assert abs(memory.taken_bytes - memory.reported_bytes) <= PAGE_BYTES
    assert all(np.array_equal(array.copy_to_host(), one) for array, one in zip(arrays, values, strict=True) if array is not None)
    arrays.clear()
    for i in range(3):
        device.give_back(f"small {i}")
    memory = device.memory()
    assert device.taken == {SHARED_PAGES: memory.taken_bytes}, "blocks wait for small arrays"
    assert abs(memory.taken_bytes - memory.reported_bytes) <= PAGE_BYTES
    device.close()


def test_kernels_that_still_run_do_not_write_where_a_dropped_array_lay(card):
    from numba import cuda

    from strata.cuda.card.generate import launch_fill

    n, rounds, other = 900_000, 20, cuda.stream()
    zeros = card.pinned(n, np.uint8)
    zeros[:] = 0
    ones = [card.upload("constants", np.full(1, value, np.int32)) for value in (0xFFFF, 1)]
    addresses = []
    for _ in range(rounds):
        array = card.empty("written", n, np.uint8)
        addresses.append(array.device_ctypes_pointer.value)
        launch = launch_fill(card, array, *ones, 3)
        for _ in range(300):
            launch.go()
        del array, launch
        new = card.empty("zeros", n, np.uint8)
        addresses.append(new.device_ctypes_pointer.value)
        new.copy_to_device(zeros, stream=other)
        other.synchronize()
        card.synchronise()
        assert not new.copy_to_host().any(), "kernels sent before wrote where the new array lies"
        del new
    assert len(set(addresses)) < len(addresses), "no bytes were used again: nothing was shown"
    card.give_back("written")
    card.give_back("zeros")


def test_a_graph_replays_and_is_rebuilt_when_a_buffer_moved(card, control):
    from strata.cuda.card.graphs import GraphTable
    from strata.cuda.packed.products import Packed, code, dense, make_coded

    form, n_out, n_in = FORMATS[12], 64, 512
    raw = packed_weights(form, 1, n_out, n_in)
    weights = Packed(card.upload("weights", raw), form.type_id, n_out, n_in)
    coded, x_on_card = make_coded(card, "codes", 2, n_in), card.empty("x", 2 * n_in, np.float32)
    table = GraphTable(card)
    outs = [card.empty("out", 2 * n_out, np.float32) for _ in range(2)]
    for step in range(6):
        x = random_rows(step, 2, n_in)
        x_on_card.copy_to_device(x.reshape(-1))
        out = outs[step // 3]
        launches = (code(card, x_on_card, coded, 2), dense(card, weights, coded, 2, out))
        table.run("two rows", launches)
        card.synchronise()
        wanted = dense_on_host(control, form, raw, n_out, coded_on_host(control, x))
        assert_same_bits(f"step {step}", out.copy_to_host().reshape(2, n_out), wanted)
    assert (table.n_captures, table.n_replays) == (2, 6)
    table.clear()


def test_programmatic_launches_give_the_same_bits(card, control):
    from strata.cuda.card.graphs import Graph
    from strata.cuda.packed.products import Packed, code, dense, make_coded

    form, n_out, n_in, n_rows = FORMATS[12], 2560, 2560, 3
    raw = packed_weights(form, 1, n_out, n_in)
    weights = Packed(card.upload("weights", raw), form.type_id, n_out, n_in)
    x = np.random.default_rng(2).standard_normal((n_rows, n_in)).astype(np.float32)
    coded, x_on_card, out = make_coded(card, "codes", n_rows, n_in), card.upload("x", x.reshape(-1)), card.empty("out", n_rows * n_out, np.float32)
    launches = []
    wanted = x
    for _ in range(3):
        launches += [code(card, x_on_card if not launches else out, coded, n_rows, programmatic=True),
                     dense(card, weights, coded, n_rows, out, programmatic=True)]
        wanted = dense_on_host(control, form, raw, n_out, coded_on_host(control, wanted))
    assert np.isfinite(wanted).all()
    graph = Graph(card, launches)
    for _ in range(20):
        graph.replay()
        card.synchronise()
        assert_same_bits("three products in a row", out.copy_to_host().reshape(n_rows, n_out), wanted)
    graph.close()
