"""Small arrays of a card, carved out of blocks of our own, so that every byte that the driver counts has a purpose.

Arrays from LARGE bytes on take whole pages of the driver's.  Smaller ones would share pages of which nobody learns how full
they are; they are pieces of blocks of one page instead, at multiples of STEP bytes, each in the first gap that takes it.  `taken`
has a piece's bytes under its purpose, and under SHARED_PAGES what blocks hold besides: all of it together is what the blocks are.

A piece is in use until its last holder is gone, whichever thread lets go of it; that is only noted.  Noted pieces become gaps in `settle`,
behind a wait for the card's stream: whatever may use them was sent before, so whoever gets their bytes next, on whichever
stream, comes behind.  Within `keeping` nothing settles: a window is running that may use them, and that may wait for this thread.
Whoever calls holds the device's lock, as do all that send to the stream.  Does not know: cards, streams, arrays.
"""

import weakref
from bisect import bisect
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

STEP = 512
"""Bytes to which a small array is rounded up; it begins at a multiple of them."""
LARGE = 1 << 20
"""Arrays of so many bytes and more are not carved: the driver gives them whole pages."""
PAGE_BYTES = 1 << 21
"""Bytes of a page of the driver's, and of a block."""
SHARED_PAGES = "shared pages"
"""The purpose of what blocks hold beside small arrays."""


def allocated_bytes(wanted: int) -> int:
    """Return how many bytes of a card an array of `wanted` bytes takes."""
    step = PAGE_BYTES if wanted >= LARGE else STEP
    return max(STEP, -(-wanted // step) * step)


@dataclass(slots=True, eq=False)
class Account:
    """Bytes of the pieces made for a purpose since it was last given back."""

    purpose: str
    n_bytes: int = 0


class Block:
    """A page: its gaps (first byte, end), ascending, no two of them touching, and what was dropped: (first byte, bytes, account)."""

    def __init__(self, memory: Any, address: int) -> None:
        self.memory, self.address = memory, address
        self.gaps = [(0, PAGE_BYTES)]
        self.dropped: deque[tuple[int, int, Account]] = deque()

    @property
    def is_empty(self) -> bool:
        return self.gaps == [(0, PAGE_BYTES)]

    def carve(self, n_bytes: int) -> int | None:
        """Take n_bytes, a multiple of STEP, of the first gap that has them; return where they begin, None where no gap does."""
        for i, (first, end) in enumerate(self.gaps):
            if end - first >= n_bytes:
                self.gaps[i : i + 1] = [(first + n_bytes, end)] if end - first > n_bytes else []
                return first
        return None

    def restore(self, first: int, n_bytes: int) -> None:
        """Make carved bytes a gap again, one with the gaps that it touches."""
        end = first + n_bytes
        i = bisect(self.gaps, (first, end))
        if i < len(self.gaps) and self.gaps[i][0] == end:
            end = self.gaps.pop(i)[1]
        if i and self.gaps[i - 1][1] == first:
            i -= 1
            first = self.gaps.pop(i)[0]
        self.gaps.insert(i, (first, end))


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Piece:
    """Bytes of a block in use; an array that has it as its owner holds it, and so does every view of that array."""

    block: Block
    first: int
    n_bytes: int

    @property
    def address(self) -> int:
        return self.block.address + self.first


class SmallArrays:
    """The blocks of one card; `taken` are the card's bytes by purpose."""

    def __init__(self, taken: dict[str, int]) -> None:
        self.taken = taken
        self.blocks: list[Block] = []
        self._accounts: dict[str, Account] = {}
        self._n_keeping = 0

    def carve(self, purpose: str, n_bytes: int, allocate: Callable[[str], tuple[Any, int]]) -> Piece:
        """Return a piece of n_bytes, a multiple of STEP and PAGE_BYTES at most.

        Where no gap takes it, allocate(purpose) gives a page, as (its owner, its address); what that raises leaves everything as it was.
        """
        found = self._gap(n_bytes)
        if found is None:
            self.blocks.append(Block(*allocate(purpose)))
            found = self._gap(n_bytes)
        block, first = found
        account = self._accounts.setdefault(purpose, Account(purpose))
        piece = Piece(block, first, n_bytes)
        weakref.finalize(piece, block.dropped.append, (first, n_bytes, account)).atexit = False
        self._account(account, n_bytes)
        self._balance()
        return piece

    def settle(self, wait: Callable[[], None]) -> None:
        """Make gaps of the pieces that were dropped; wait() returns when the card has done what was sent to it, and is asked only then."""
        if self._n_keeping or not any(block.dropped for block in self.blocks):
            return
        wait()
        for block in self.blocks:
            while block.dropped:
                first, n_bytes, account = block.dropped.popleft()
                block.restore(first, n_bytes)
                self._account(account, -n_bytes)
        self._balance()

    def tidy(self, wait: Callable[[], None]) -> None:
        """Settle, and let go of the blocks that are empty."""
        self.settle(wait)
        if not self._n_keeping:
            self.blocks = [block for block in self.blocks if not block.is_empty]
            self._balance()

    def give_back(self, purpose: str) -> None:
        """Forget what a purpose has taken; pieces of it that somebody still holds count as shared pages."""
        self._accounts.pop(purpose, None)
        self._balance()

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Let nothing settle meanwhile."""
        self._n_keeping += 1
        try:
            yield
        finally:
            self._n_keeping -= 1

    def _gap(self, n_bytes: int) -> tuple[Block, int] | None:
        for block in self.blocks:
            first = block.carve(n_bytes)
            if first is not None:
                return block, first
        return None

    def _account(self, account: Account, n_bytes: int) -> None:
        """Account bytes more, or less, to a purpose; nothing where it was given back since the piece was made."""
        account.n_bytes += n_bytes
        if self._accounts.get(account.purpose) is account:
            self.taken[account.purpose] = self.taken.get(account.purpose, 0) + n_bytes
            if not account.n_bytes:
                del self._accounts[account.purpose]
            if not self.taken[account.purpose]:
                del self.taken[account.purpose]

    def _balance(self) -> None:
        """Account what blocks hold beside accounted pieces."""
        rest = PAGE_BYTES * len(self.blocks) - sum(account.n_bytes for account in self._accounts.values())
        if rest:
            self.taken[SHARED_PAGES] = rest
        else:
            self.taken.pop(SHARED_PAGES, None)
