"""Checks of launch arguments: what a kernel's fixed tiling can take, and how much shared memory a block can have.

Does not know: kernels.
"""

from strata.errors import UsageError

REMEDY = "use a model whose dimensions fit, or the host executor"


def require(condition: bool, what: str, why: str, remedy: str = REMEDY) -> None:
    """Raise UsageError(what, why, remedy) unless the condition holds."""
    if not condition:
        raise UsageError(what, why, remedy)


def shared_room(capability: tuple[int, int]) -> int:
    """Return the bytes of shared memory that one block can have on a card of a compute capability."""
    if capability[0] == 7:
        return 64 << 10
    if capability in ((8, 6), (8, 9)) or capability[0] >= 12:
        return 99 << 10
    return (163 if capability[0] == 8 else 227) << 10
