"""Which prompts a golden file holds, and the few whose operations are hashed too."""

from dataclasses import replace

from harness.scope import Scope
from harness.workload import Item

CONTINUED = {1: 16, 2: 64}
"""Tokens of each continuation, by level, where no number is given."""
OPERATION_ROWS = 300
"""Prompt rows whose operations are hashed, about; at least the shortest prompt."""


def recorded_items(scope: Scope) -> tuple[Item, ...]:
    """Return every prompt, whole, with the number of tokens to continue it by."""
    n = CONTINUED[scope.options.level] if scope.options.max_new is None else scope.options.max_new
    return tuple(replace(item, max_new=n) for item in scope.prompts)


def operation_items(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return the shortest prompts, and the first that is long enough to choose among cells, up to OPERATION_ROWS rows."""
    by_length = sorted(items, key=lambda item: len(item.prompt))
    chosen: list[Item] = []
    for item in by_length:
        if chosen and sum(len(i.prompt) for i in chosen) + len(item.prompt) > OPERATION_ROWS:
            break
        chosen.append(item)
    return tuple(chosen)
