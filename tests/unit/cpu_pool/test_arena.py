"""The arenas: the same blobs from every one of them, budgets by rank, locks that are refused, swaps."""

import mmap
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from strata.cpu_pool import arena as room
from strata.cpu_pool import page_locks
from strata.cpu_pool.arena import PARTS, ArenaSettings, Banks, MappedArena, chosen_pairs, open_arena
from strata.cpu_pool.page_locks import HUGE_PAGE_BYTES, Locked, available_bytes, lock, on_own_pages, read_ahead, unlock
from strata.errors import DeviceError, DeviceMemoryError, UsageError

SIZES = {0: (64, 64, 96), 3: (128, 128, 32)}
N_EXPERTS = 5


@pytest.fixture
def banks() -> Banks:
    generator = np.random.default_rng(7)
    return Banks({
        (layer, part): generator.integers(0, 256, (N_EXPERTS, size), np.uint8)
        for layer, sizes in SIZES.items() for part, size in zip(PARTS, sizes, strict=True)
    })


def blobs(arena, layer: int, expert: int) -> bytes:
    return b"".join(arena.expert(layer, part, expert).tobytes() for part in PARTS)


@pytest.mark.parametrize("settings", [ArenaSettings("mapped"), ArenaSettings("resident"), ArenaSettings("resident", 700), ArenaSettings("pinned"), ArenaSettings("pinned", pin_bytes=100)])
def test_every_arena_gives_the_files_bytes(banks, settings):
    arena, mapped = open_arena(banks, settings, [(3, 1), (0, 2)]), MappedArena(banks)
    assert [blobs(arena, *pair) for pair in banks.pairs()] == [blobs(mapped, *pair) for pair in banks.pairs()]
    arena.close()


def test_a_budget_keeps_the_hottest_and_stops_at_the_first_that_does_not_fit(banks):
    ranking = [(3, 4), (0, 1), (0, 2), (3, 0)]
    assert chosen_pairs(banks, 288 + 224, ranking, ()) == [(3, 4), (0, 1)]
    assert chosen_pairs(banks, 288 + 224 + 223, ranking, ()) == [(3, 4), (0, 1)]
    assert chosen_pairs(banks, 10_000_000, ranking, ()) == ranking + [p for p in banks.pairs() if p not in ranking]


def test_what_a_card_holds_needs_no_copy(banks):
    held = [(0, expert) for expert in range(N_EXPERTS)]
    arena = open_arena(banks, ArenaSettings("resident"), [(0, 1), (3, 1)], held)
    assert not any(arena.is_resident(*pair) for pair in held)
    assert all(arena.is_resident(3, expert) for expert in range(N_EXPERTS))
    assert arena.copied_bytes == N_EXPERTS * banks.blob_bytes(3)


def test_a_swap_gives_the_slot_to_the_expert_that_left_the_card(banks):
    held = [(0, 0)]
    arena = open_arena(banks, ArenaSettings("resident"), (), held)
    evicted = {part: banks.of[0, part][0].copy() for part in PARTS}
    assert arena.exchange(0, leaves=3, comes=0, blobs=evicted)
    assert arena.is_resident(0, 0) and not arena.is_resident(0, 3)
    assert all(blobs(arena, *pair) == blobs(MappedArena(banks), *pair) for pair in banks.pairs())


def test_a_swap_of_an_expert_that_has_no_copy_leaves_the_other_in_the_file(banks):
    arena = open_arena(banks, ArenaSettings("resident", 0), ())
    assert not arena.exchange(0, leaves=3, comes=0, blobs={part: banks.of[0, part][0] for part in PARTS})
    assert blobs(arena, 0, 0) == blobs(MappedArena(banks), 0, 0)


def test_the_first_bytes_of_a_full_copy_are_locked_and_no_others(banks, monkeypatch):
    monkeypatch.setattr(room, "lock", lambda array, n_bytes=None: Locked(array.nbytes if n_bytes is None else n_bytes, None))
    whole = sum(banks.of[0, part].size for part in PARTS)
    arena = open_arena(banks, ArenaSettings("pinned", pin_bytes=whole + 2 * 128))
    assert arena.locked_bytes == whole + 2 * 128
    assert all(arena.page_locked(0, expert) for expert in range(N_EXPERTS))
    assert not any(arena.page_locked(3, expert) for expert in range(N_EXPERTS))


@pytest.mark.parametrize("mode", ["pinned", "resident"])
def test_a_lock_that_is_refused_is_said_and_costs_no_bit(banks, monkeypatch, mode):
    monkeypatch.setattr(room, "lock", lambda array, n_bytes=None: Locked(0, "locking 480 bytes was refused: Cannot allocate memory"))
    arena = open_arena(banks, ArenaSettings(mode))
    assert arena.locked_bytes == 0 and len(arena.notes) == 1 and "was refused" in arena.notes[0]
    assert not any(arena.page_locked(*pair) for pair in banks.pairs())
    assert all(blobs(arena, *pair) == blobs(MappedArena(banks), *pair) for pair in banks.pairs())


def test_a_full_copy_that_does_not_fit_is_refused_with_the_figures(banks, monkeypatch):
    monkeypatch.setattr(room, "available_bytes", lambda: 100)
    with pytest.raises(DeviceMemoryError, match="a copy of all experts") as caught:
        open_arena(banks, ArenaSettings("pinned"))
    assert (caught.value.asked_bytes, caught.value.free_bytes) == (banks.total_bytes, 100)


def test_a_copy_that_differs_from_its_source_is_an_error(monkeypatch):
    class Failing(np.ndarray):
        def __setitem__(self, at, values):
            super().__setitem__(at, values ^ 1)

    monkeypatch.setattr(room, "on_own_pages", lambda shape: np.empty(shape, np.uint8).view(Failing))
    with pytest.raises(DeviceError, match="differs from the file"):
        room.copied(np.arange(8, dtype=np.uint8), "a test")


@pytest.mark.parametrize("size", [1, 4096, 10000])
def test_copies_share_no_page(size):
    arrays = [on_own_pages((size,)) for _ in range(3)]
    starts = sorted(array.ctypes.data for array in arrays)
    assert all(start % 4096 == 0 for start in starts)
    assert all(later // 4096 > (start + size - 1) // 4096 for start, later in zip(starts, starts[1:], strict=False))


def test_large_copies_begin_a_huge_page_and_can_be_written():
    arrays = [on_own_pages((3, 1 << 20)) for _ in range(2)]
    for i, array in enumerate(arrays):
        array[:] = i + 1
    assert all(array.ctypes.data % HUGE_PAGE_BYTES == 0 and array.shape == (3, 1 << 20) for array in arrays)
    assert (arrays[0] == 1).all() and (arrays[1] == 2).all()


def flags_of(array: np.ndarray) -> list[str]:
    """Flags of the mapping that an array lies in, as the kernel abbreviates them."""
    at, is_here = array.ctypes.data, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if not name.endswith(":"):
            first, _, behind = name.partition("-")
            is_here = int(first, 16) <= at < int(behind, 16)
        elif is_here and name == "VmFlags:":
            return rest.split()
    return []


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").is_dir(), reason="the system knows no huge pages")
def test_large_copies_ask_for_huge_pages_in_private_memory_which_alone_is_granted_any():
    array, shared = on_own_pages((8 << 20,)), np.frombuffer(mmap.mmap(-1, 8 << 20), np.uint8)
    assert "hg" in flags_of(array) and "sh" not in flags_of(array)
    assert "sh" in flags_of(shared)


@pytest.mark.parametrize("missing", ["cffi", "mlock"])
def test_a_refused_lock_says_what_is_missing_and_copies_stay_lockable(banks, monkeypatch, missing):
    class Nothing:
        def cdef(self, text): ...

        def dlopen(self, name):
            return object()

    monkeypatch.setitem(sys.modules, "cffi", None if missing == "cffi" else SimpleNamespace(FFI=Nothing))
    page_locks._c_library.cache_clear()
    try:
        arena = open_arena(banks, ArenaSettings("resident"))
        assert ("cffi is missing" if missing == "cffi" else "C library has no mlock") in arena.notes[0]
        assert sum(copies.size for copies in arena.lockable().values()) == banks.total_bytes and not read_ahead(np.ones(4096, np.uint8))
        arena.close()
    finally:
        page_locks._c_library.cache_clear()


def test_what_is_to_stay_in_ram_is_what_the_settings_say(banks):
    assert open_arena(banks, ArenaSettings()).lockable() == {}
    whole, part, chosen = (open_arena(banks, settings) for settings in (ArenaSettings("pinned"), ArenaSettings("pinned", pin_bytes=banks.total_bytes // 2), ArenaSettings("resident")))
    for arena in (whole, part, chosen):
        for (layer, name), copies in arena.lockable().items():
            assert all(np.array_equal(copies[i], arena.bank("copies", layer, name)[i]) for i in range(len(copies)))
    sizes = [sum(copies.size for copies in arena.lockable().values()) for arena in (whole, part, chosen)]
    assert sizes[0] == sizes[2] == banks.total_bytes and 0 < sizes[1] <= banks.total_bytes // 2


def test_an_unknown_mode_is_refused(banks):
    with pytest.raises(UsageError, match="no such mode"):
        open_arena(banks, ArenaSettings("swapped"))


def test_pages_are_locked_and_let_go_for_real():
    array = np.ones(3 * 4096, np.uint8)
    got = lock(array)
    assert got.refusal is not None or got.n_bytes >= array.nbytes
    unlock(array)
    assert read_ahead(array) in (True, False) and available_bytes() >= 0


def test_a_lock_beyond_the_limit_is_refused_with_the_reason():
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    array = np.ones(1 << 20, np.uint8)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (4096, hard))
    try:
        got = lock(array)
    finally:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (soft, hard))
        unlock(array)
    if got.refusal is None:
        pytest.skip("this user may lock beyond the limit")
    assert "4,096" in got.refusal and got.n_bytes == 0


@pytest.mark.parametrize("settings", [ArenaSettings("mapped"), ArenaSettings("resident"), ArenaSettings("resident", 700), ArenaSettings("pinned")])
def test_banks_hold_what_blobs_are(banks, settings):
    arena = open_arena(banks, settings, [(3, 1), (0, 2)])
    for layer, expert in banks.pairs():
        source, place = arena.source(layer, expert)
        assert all(np.array_equal(arena.bank(source, layer, part)[place], arena.expert(layer, part, expert)) for part in PARTS)
        assert (source == "copies") == arena.is_resident(layer, expert)
    arena.close()
