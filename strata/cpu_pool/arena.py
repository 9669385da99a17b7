"""Where the experts that no card holds lie in RAM: in the mapped file, in a locked copy of some, or in a copy of all.

An expert is (layer, id); its weights are the *parts* `gate`, `up`, `down`, each a blob of packed bytes.  Three arenas with one
interface:

    mapped      nothing is copied; the system's file cache holds what was read last (`--mmap-experts`)
    resident    locked copies of the experts that no card holds, all of them or the hottest that fit a budget
                (`--resident-experts`, `--resident-budget-gib`); the others are read from the mapped file
    pinned      a copy of all experts, of which the first STRATA_ARENA_PIN_GIB are locked (0: all)

Where an expert lies never changes a bit: a copy is compared with its source when it is made.  A lock that the machine
refuses is a note, not an error.  One thread changes an arena, between windows.  Does not know: cards, formats, routing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from strata.cpu_pool.page_locks import available_bytes, lock, on_own_pages, read_ahead, unlock
from strata.errors import DeviceError, DeviceMemoryError, UsageError

PARTS = ("gate", "up", "down")
MODES = ("mapped", "resident", "pinned")
FILE, COPIES = "file", "copies"
LEFT_FREE = 1 << 30
"""Bytes of RAM that a copy without a budget leaves to everybody else."""
GIB = 1 << 30

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ArenaSettings:
    """`mode` of MODES; `budget_bytes` of the resident copies (None: what is free); `pin_bytes` of a full copy (None: all)."""

    mode: str = "mapped"
    budget_bytes: int | None = None
    pin_bytes: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Banks:
    """The experts' weights in the file: (layer, part) -> uint8 [experts, bytes of one blob], views of the mapping."""

    of: Mapping[tuple[int, str], np.ndarray]

    @property
    def layers(self) -> tuple[int, ...]:
        return tuple(sorted({layer for layer, _ in self.of}))

    def n_experts(self, layer: int) -> int:
        return self.of[layer, PARTS[0]].shape[0]

    def blob_bytes(self, layer: int) -> int:
        """Bytes of one expert of a layer, all parts."""
        return sum(self.of[layer, part].shape[1] for part in PARTS)

    def pairs(self) -> list[Pair]:
        return [(layer, expert) for layer in self.layers for expert in range(self.n_experts(layer))]

    @property
    def total_bytes(self) -> int:
        return sum(bank.size for bank in self.of.values())


def open_arena(banks: Banks, settings: ArenaSettings, hottest_first: Iterable[Pair] = (), held: Iterable[Pair] = ()):
    """Open the arena that settings ask for.

    `hottest_first` ranks experts where not all fit; those it leaves out come last, by layer and id.  `held` experts lie in
    a card's cache and need no copy.  Raises UsageError for an unknown mode, DeviceMemoryError where a full copy does not fit.
    """
    if settings.mode not in MODES:
        raise UsageError(f"experts in RAM: {settings.mode}", "there is no such mode", f"use one of {', '.join(MODES)}")
    if settings.mode == "mapped":
        return MappedArena(banks)
    if settings.mode == "pinned":
        return PinnedArena(banks, settings.pin_bytes)
    return ResidentArena(banks, chosen_pairs(banks, settings.budget_bytes, hottest_first, held))


def chosen_pairs(banks: Banks, budget_bytes: int | None, hottest_first: Iterable[Pair], held: Iterable[Pair]) -> list[Pair]:
    """Return the experts to copy: all that no card holds, or the hottest of them up to the first that exceeds the budget."""
    budget = max(0, available_bytes() - LEFT_FREE) if budget_bytes is None else budget_bytes
    away = set(held)
    wanted = dict.fromkeys(pair for pair in (*map(tuple, hottest_first), *banks.pairs()) if pair not in away)
    chosen, taken = [], 0
    for layer, expert in wanted:
        taken += banks.blob_bytes(layer)
        if taken > budget:
            break
        chosen.append((layer, expert))
    return chosen


class MappedArena:
    """Every expert in the mapped file."""

    mode = "mapped"

    def __init__(self, banks: Banks) -> None:
        self.banks, self.notes, self.copied_bytes, self.locked_bytes = banks, (), 0, 0
        for bank in banks.of.values():
            read_ahead(bank)

    def expert(self, layer: int, part: str, expert: int) -> np.ndarray:
        """Return one blob, uint8, as a view that must not be written."""
        return self.banks.of[layer, part][expert]

    def source(self, layer: int, expert: int) -> tuple[str, int]:
        """Return which bank an expert is read from, `file` or `copies`, and its number there."""
        return FILE, expert

    def bank(self, source: str, layer: int, part: str) -> np.ndarray:
        """Return a bank of blobs, uint8 [experts, bytes of one blob]; the same array for as long as the arena lives."""
        return self.banks.of[layer, part]

    def is_resident(self, layer: int, expert: int) -> bool:
        """Whether an expert has a copy in RAM."""
        return False

    def page_locked(self, layer: int, expert: int) -> bool:
        """Whether an expert's pages are locked, so that a card may fetch them by itself."""
        return False

    def lockable(self) -> Mapping[tuple[int, str], np.ndarray]:
        """Return the copies that are to stay in RAM, by (layer, part): the first blobs of the bank `copies`, uint8 [n, bytes of one blob]."""
        return {}

    def exchange(self, layer: int, leaves: int, comes: int, blobs: Mapping[str, np.ndarray]) -> bool:
        """A swap moved `leaves` into a cache and `comes` (its blobs by part) out of it; return whether `comes` has a copy now."""
        return False

    def close(self) -> None:
        """Let the copies go."""


class PinnedArena(MappedArena):
    """A copy of every expert, bank by bank, the first `pin_bytes` of it locked (None: all)."""

    mode = "pinned"

    def __init__(self, banks: Banks, pin_bytes: int | None) -> None:
        self.banks = banks
        free = available_bytes()
        if free and banks.total_bytes > free:
            raise DeviceMemoryError("this machine's RAM", "a copy of all experts", banks.total_bytes, free)
        self._copies: dict[tuple[int, str], np.ndarray] = {}
        self._locked: dict[tuple[int, str], int] = {}
        self._lockable: dict[tuple[int, str], np.ndarray] = {}
        left, notes = banks.total_bytes if pin_bytes is None else pin_bytes, []
        wanted = left
        for place, bank in sorted(banks.of.items()):
            self._copies[place] = copied(bank, place)
            self._lockable[place] = self._copies[place][: wanted // bank.shape[1]]
            wanted -= min(wanted, bank.size)
            got = lock(self._copies[place], min(left, bank.size))
            self._locked[place] = min(got.n_bytes, left, bank.size)
            left = 0 if got.refusal else left - self._locked[place]
            notes += [got.refusal] if got.refusal else []
        self.copied_bytes, self.locked_bytes = banks.total_bytes, sum(self._locked.values())
        self.notes = tuple(f"experts in RAM: {note}; the rest streams through the staging ring" for note in notes[:1])

    def expert(self, layer: int, part: str, expert: int) -> np.ndarray:
        return self._copies[layer, part][expert]

    def source(self, layer: int, expert: int) -> tuple[str, int]:
        return COPIES, expert

    def bank(self, source: str, layer: int, part: str) -> np.ndarray:
        return self._copies[layer, part]

    def is_resident(self, layer: int, expert: int) -> bool:
        return True

    def page_locked(self, layer: int, expert: int) -> bool:
        return all((expert + 1) * self._copies[layer, part].shape[1] <= self._locked[layer, part] for part in PARTS)

    def lockable(self) -> Mapping[tuple[int, str], np.ndarray]:
        return self._lockable

    def close(self) -> None:
        for copy in self._copies.values():
            unlock(copy)


def copied(source: np.ndarray, what: object) -> np.ndarray:
    """Return a copy that was read back and found equal; raises DeviceError where it is not."""
    copy = on_own_pages(source.shape)
    copy[:] = source
    if not np.array_equal(copy, source):
        raise DeviceError(f"the copy of {what} in RAM", "it differs from the file", "check the memory of this machine")
    return copy


class ResidentArena(MappedArena):
    """Copies of chosen experts in locked slots; a layer's slots are of one size, and a swap reuses the slot that came free."""

    mode = "resident"

    def __init__(self, banks: Banks, pairs: Iterable[Pair]) -> None:
        self.banks = banks
        by_layer: dict[int, list[int]] = {layer: [] for layer in banks.layers}
        for layer, expert in pairs:
            by_layer[layer].append(expert)
        self._slot_of: dict[Pair, int] = {}
        self._slots: dict[tuple[int, str], np.ndarray] = {}
        notes, self.locked_bytes = [], 0
        for layer, experts in by_layer.items():
            self._slot_of.update({(layer, expert): slot for slot, expert in enumerate(experts)})
            for part in PARTS:
                slots = copied(banks.of[layer, part][experts], (layer, part))
                got = lock(slots)
                self._slots[layer, part] = slots
                self.locked_bytes += min(got.n_bytes, slots.size)
                notes += [got.refusal] if got.refusal else []
        self.copied_bytes = sum(slots.size for slots in self._slots.values())
        n_left = len(banks.pairs()) - len(self._slot_of)
        self.notes = tuple(f"experts in RAM: {note}; the copies may be paged out" for note in notes[:1])
        self.n_in_file = n_left

    def expert(self, layer: int, part: str, expert: int) -> np.ndarray:
        slot = self._slot_of.get((layer, expert))
        return self.banks.of[layer, part][expert] if slot is None else self._slots[layer, part][slot]

    def source(self, layer: int, expert: int) -> tuple[str, int]:
        slot = self._slot_of.get((layer, expert))
        return (FILE, expert) if slot is None else (COPIES, slot)

    def bank(self, source: str, layer: int, part: str) -> np.ndarray:
        return self.banks.of[layer, part] if source == FILE else self._slots[layer, part]

    def is_resident(self, layer: int, expert: int) -> bool:
        return (layer, expert) in self._slot_of

    def page_locked(self, layer: int, expert: int) -> bool:
        return not self.notes and (layer, expert) in self._slot_of

    def lockable(self) -> Mapping[tuple[int, str], np.ndarray]:
        return self._slots

    def exchange(self, layer: int, leaves: int, comes: int, blobs: Mapping[str, np.ndarray]) -> bool:
        slot = self._slot_of.pop((layer, leaves), None)
        if slot is None:
            return False
        for part in PARTS:
            self._slots[layer, part][slot] = blobs[part]
        self._slot_of[layer, comes] = slot
        return True

    def close(self) -> None:
        for slots in self._slots.values():
            unlock(slots)
