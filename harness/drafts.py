"""Scripted drafts: proposals made from a reference answer, right and wrong by a named pattern.

A pattern says how many of the k = width - 1 drafts of a window should be accepted; the draft behind them is corrupted, the
ones after it are right again, so that an acceptance that is not a prefix shows.  `mixed` corrupts drafts independently.
Draws depend on (seed, request, window) only.  Does not know: engines, how answers come about.
"""

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from strata.batch.requests import DraftSource
from strata.errors import UsageError

BEHIND_THE_END = 0
"""Drafts behind the end of the reference answer, which nobody should look at."""
MIXED_RIGHT = 0.7
"""Share of right drafts of the pattern `mixed`."""

PATTERNS: dict[str, Callable[[int, int, int, random.Random], set[int]]] = {
    "right": lambda request, window, k, draw: set(),
    "wrong": lambda request, window, k, draw: {0},
    "cycle": lambda request, window, k, draw: {window % (k + 1)},
    "ragged": lambda request, window, k, draw: {request % (k + 1)},
    "mixed": lambda request, window, k, draw: {i for i in range(k) if draw.random() >= MIXED_RIGHT},
}
"""Which of a window's drafts are corrupted: from (request, window number, k, random numbers) to indices."""


@dataclass(frozen=True, slots=True)
class DraftScript:
    """Verify windows of up to `width` rows whose drafts follow `pattern`."""

    width: int
    pattern: str
    seed: int = 0

    def __post_init__(self) -> None:
        if self.pattern not in PATTERNS:
            raise UsageError(f"pattern={self.pattern}", "there is no such draft pattern", f"use one of {', '.join(PATTERNS)}")
        if self.width < 1:
            raise UsageError(f"width={self.width}", "a window has at least the fed token", "use 1 or more")

    def described(self) -> str:
        """Return the script in words."""
        return f"{self.pattern} drafts, width {self.width}, seed {self.seed}"

    def source(self, request: int, answer: Sequence[int], vocabulary: int) -> DraftSource:
        """Return what proposes drafts for one request, given the tokens of its reference answer."""
        windows, k = itertools.count(), self.width - 1

        def propose(emitted: Sequence[int]) -> list[int]:
            window = next(windows)
            draw = random.Random(f"{self.seed} {request} {window}")
            drafts = list(answer[len(emitted) : len(emitted) + k])
            drafts += [BEHIND_THE_END] * (k - len(drafts))
            for index in PATTERNS[self.pattern](request, window, k, draw):
                if index < len(drafts):
                    drafts[index] = (drafts[index] + 1 + draw.randrange(vocabulary - 1)) % vocabulary
            return drafts

        return propose
