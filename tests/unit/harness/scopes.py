"""Scopes over the shipped model, with its prompts or with given ones."""

from functools import cache

from harness.options import Options
from harness.scope import Scope, open_scope
from harness.workload import Item


@cache
def shipped():
    """The shipped model and its scope at level 1."""
    return open_scope(Options())


def scope(prompts: tuple[Item, ...] | None = None, **options) -> Scope:
    """A scope over the shipped model with options; prompts given stand as a user's own."""
    model, whole = shipped()
    return Scope(Options(**options), model.config, prompts or whole.prompts, prompts is not None)


def short_prompts(n: int, length: int = 6) -> tuple[Item, ...]:
    """The first tokens of n shipped prompts."""
    return tuple(item.cut(length) for item in shipped()[1].prompts[:n])
