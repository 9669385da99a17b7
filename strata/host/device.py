"""A host device: the CPU standing in for a card, with a team of threads and a byte budget.

What a stage places on a device (weights of its layers, sessions, buffers) is taken from the budget by name, so that
running out is a clear error and `taken` explains where the bytes are.  Mapped weights count as placed: on a card they
would be.  Opening refuses a machine whose arithmetic is not the contract's.  Does not know: what is computed.
"""

from strata.cpu_pool.team import Team
from strata.errors import DeviceMemoryError
from strata.host.arithmetic_check import require_exact_team, warn_where_fma_is_slow


class HostDevice:
    """`name` as in `host:0`; `budget_bytes` None means no limit; `n_threads` members of the device's team."""

    def __init__(self, name: str, budget_bytes: int | None, n_threads: int) -> None:
        self.name, self.budget_bytes = name, budget_bytes
        self.team = Team(n_threads)
        require_exact_team(name, self.team)
        warn_where_fma_is_slow()
        self.taken: dict[str, int] = {}

    @property
    def kind(self) -> str:
        return "host"

    @property
    def taken_bytes(self) -> int:
        return sum(self.taken.values())

    def take(self, purpose: str, n_bytes: int) -> None:
        """Account n_bytes to a purpose; raises DeviceMemoryError, with nothing taken, where the budget does not suffice."""
        if self.budget_bytes is not None and self.taken_bytes + n_bytes > self.budget_bytes:
            raise DeviceMemoryError(self.name, purpose, n_bytes, self.budget_bytes - self.taken_bytes)
        self.taken[purpose] = self.taken.get(purpose, 0) + n_bytes

    def give_back(self, purpose: str) -> None:
        """Release what was taken for a purpose."""
        self.taken.pop(purpose, None)

    def close(self) -> None:
        self.team.close()
