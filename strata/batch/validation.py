"""Checks of a request before anything runs."""

from strata.batch.requests import Request
from strata.errors import RequestError
from strata.model.config import ModelConfig

ROOM = 8
"""Positions kept free behind a request: the rows of one window."""


def check_request(request: Request, config: ModelConfig, context: int) -> None:
    """Raise RequestError for an empty or too long prompt, or a token that the model does not have."""
    n = len(request.prompt)
    if n == 0:
        raise RequestError("prompt=[]", "there is no token to start from", "give at least one token")
    if request.max_new < 0:
        raise RequestError(f"max_new={request.max_new}", "it is negative", "use 0 or more")
    if request.pcie_frac is not None and not 0 <= request.pcie_frac <= 1:
        raise RequestError(f"pcie_frac={request.pcie_frac}", "it is not a share", "use 0 to 1, or leave it out")
    needed = n + request.max_new + (ROOM if request.max_new else 0)
    if needed > context:
        raise RequestError(
            f"prompt of {n} tokens with max_new={request.max_new}",
            f"it needs {needed} positions and the context has {context}",
            "shorten the prompt, ask for fewer tokens or use a larger --context",
        )
    for token in (*request.prompt, *(request.forced or ())):
        if not 0 <= token < config.vocabulary:
            raise RequestError(f"token id {token}", f"the vocabulary has {config.vocabulary} tokens", "use ids from 0 to that less 1")
