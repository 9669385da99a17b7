"""Checks of launch arguments: what a kernel's fixed tiling can take.

Does not know: kernels.
"""

from strata.errors import UsageError

REMEDY = "use a model whose dimensions fit, or the host executor"


def require(condition: bool, what: str, why: str, remedy: str = REMEDY) -> None:
    """Raise UsageError(what, why, remedy) unless the condition holds."""
    if not condition:
        raise UsageError(what, why, remedy)
