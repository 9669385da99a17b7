"""Prompt loans: how many rows a prompt is read by, and how many cache slots its buffers need.  Pure functions.

A prompt chunk's buffers lie in the last slots of a device's cache for as long as the prompt is read; the experts there are
absent until they are filled in again.  A device that has its own buffers lends nothing.

    chunk        min(prefill, the prompt's tokens rounded up to `CHUNK_STEP`)
    auto chunk   the most that every cache can lend, `MOST_AUTO_CHUNK` at most
    own buffers  asked for (no borrowing; on a split by `split_own`), or where a device has free budget left for them

Windows of `SMALL_WINDOW` rows or less need no chunk buffers.  Does not know: what lies in a buffer, devices.
"""

from collections.abc import Sequence
from dataclasses import dataclass

CHUNK_STEP = 256
MOST_AUTO_CHUNK = 8192
SMALL_WINDOW = 8
OWN_PERCENT = 12
"""With split_own=auto every device keeps its own buffers where they are at most this much of each one's budget."""
SPLIT_OWN = ("", "1", "auto")


@dataclass(frozen=True, slots=True)
class Room:
    """A device once its cache is sized: bytes left (None: no limit), bytes that the cache can lend, bytes of a chunk's row."""

    left_bytes: int | None
    lendable_bytes: int
    row_bytes: int

    @property
    def lendable_rows(self) -> int:
        return self.lendable_bytes // self.row_bytes

    def keeps_own(self, rows: int) -> bool:
        """Whether there is free budget for buffers of its own."""
        return self.left_bytes is None or self.left_bytes >= rows * self.row_bytes


def is_chunk(is_prompt: bool, n_rows: int) -> bool:
    """Whether a window is computed in chunk buffers."""
    return is_prompt and n_rows > SMALL_WINDOW


def loan_rows(n_rows: int, prefill: int) -> int:
    """Return the rows that buffers are laid out for, when a prompt's first chunk has n_rows."""
    return min(prefill, -(-n_rows // CHUNK_STEP) * CHUNK_STEP)


def slots_to_lend(n_bytes: int, slot_bytes: int) -> int:
    """Return the slots that hold n_bytes."""
    return -(-n_bytes // slot_bytes)


def must_own(borrows: bool, split_own: str, own_bytes: Sequence[int], budgets: Sequence[int | None]) -> bool:
    """Whether all devices must have their own buffers; bytes of the buffers and budget (None: no limit) of each."""
    if not borrows:
        return True
    if len(budgets) < 2 or not split_own:
        return False
    return split_own == "1" or all(
        budget is None or 100 * own <= OWN_PERCENT * budget for own, budget in zip(own_bytes, budgets, strict=True)
    )


def chunk_of(rooms: Sequence[Room], prefill: int, is_auto: bool) -> tuple[int, tuple[bool, ...]]:
    """Return (rows of a chunk, which devices keep buffers of their own); 0 rows where a device can neither own nor lend one."""
    owns = tuple(room.keeps_own(prefill) for room in rooms)
    if all(owns):
        return prefill, owns
    most = MOST_AUTO_CHUNK if is_auto else prefill
    for room, is_owner in zip(rooms, owns, strict=True):
        if not is_owner:
            most = min(most, room.lendable_rows)
        elif room.left_bytes is not None:
            most = min(most, room.left_bytes // room.row_bytes)
    return most, owns
