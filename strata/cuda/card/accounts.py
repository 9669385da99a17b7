"""What a card's memory is taken for: bytes by purpose, within a budget.

Does not know: the memory itself.
"""

from dataclasses import dataclass

from strata.errors import DeviceMemoryError


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes: what the purposes add up to, what the driver counts since the card was opened, what is free, what there is."""

    taken_bytes: int
    reported_bytes: int
    free_bytes: int
    total_bytes: int


class Accounts:
    """`taken` bytes by purpose; `budget_bytes` (None: all that is free) bounds them as long as `budget_holds`."""

    def __init__(self, name: str, budget_bytes: int | None) -> None:
        self.name, self.budget_bytes, self.budget_holds = name, budget_bytes, True
        self.taken: dict[str, int] = {}

    @property
    def taken_bytes(self) -> int:
        return sum(self.taken.values())

    def require_room(self, purpose: str, n_bytes: int) -> None:
        """Raise DeviceMemoryError where the budget does not suffice for n_bytes more."""
        if self.budget_holds and self.budget_bytes is not None and self.taken_bytes + n_bytes > self.budget_bytes:
            raise DeviceMemoryError(self.name, purpose, n_bytes, self.budget_bytes - self.taken_bytes)

    def take(self, purpose: str, n_bytes: int) -> None:
        """Account n_bytes to a purpose; raises DeviceMemoryError, with nothing taken, where the budget does not suffice."""
        self.require_room(purpose, n_bytes)
        self.taken[purpose] = self.taken.get(purpose, 0) + n_bytes

    def move(self, purpose: str, other: str, n_bytes: int) -> None:
        """Account a part of what whole pages were taken for to another purpose."""
        self.taken[purpose] -= n_bytes
        self.taken[other] = self.taken.get(other, 0) + n_bytes

    def untake(self, purpose: str, n_bytes: int) -> None:
        """Undo a `take`."""
        self.taken[purpose] -= n_bytes
        if not self.taken[purpose]:
            del self.taken[purpose]
