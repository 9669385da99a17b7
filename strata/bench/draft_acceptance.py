"""How often the draft layer is right: at every position of greedy answers, not at the windows' own.

After each token became known the layer chains its drafts; draft number d counts where those before it were right, so the
shares multiply to the tokens that a window of full width would give.  Windows begin where a draft has just failed, which is
where text is hard: rates counted there are lower, and a published rate must say which it is.
Does not know: time, what drafts are worth.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from strata.batch.engine import Engine
from strata.batch.settings import EngineSettings
from strata.bench.draft_speed import ALL, BenchPrompt
from strata.model.model import Model
from strata.rows import KeptRows, Segment, Window
from strata.windows.picks import read_row

SLOT = 0


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Drafts on one kind of prompts: `reached[d]` drafts number d + 1 whose predecessors were right, `right[d]` of them right."""

    kind: str
    reached: tuple[int, ...]
    right: tuple[int, ...]

    @property
    def shares(self) -> tuple[float, ...]:
        return tuple(right / reached if reached else 0.0 for right, reached in zip(self.right, self.reached, strict=True))


def measure(
    model: Model, settings: EngineSettings, prompts: Sequence[BenchPrompt], n_new: int, n_drafts: int, tell: Callable[[str], None]
) -> tuple[Acceptance, ...]:
    """Return the acceptance over all prompts, then by kind: n_drafts chained behind each of n_new tokens.

    Raises UsageError where the model has no draft layer.
    """
    reached: dict[str, np.ndarray] = {}
    right: dict[str, np.ndarray] = {}
    with Engine(model, replace(settings, mtp=True, batch_mtp=False, batch=1, batch_groups=1)) as engine:
        for number, prompt in enumerate(prompts, start=1):
            tell(f"drafts at every position, {number} of {len(prompts)}")
            for kind in (ALL, prompt.kind):
                counts = [found.setdefault(kind, np.zeros(n_drafts, np.int64)) for found in (reached, right)]
                if kind == ALL:
                    seen = _follow(engine, prompt.ids, n_new, n_drafts)
                counts[0] += seen[0]
                counts[1] += seen[1]
    return tuple(Acceptance(kind, tuple(reached[kind].tolist()), tuple(right[kind].tolist())) for kind in reached)


def _follow(engine: Engine, prompt: Sequence[int], n_new: int, n_drafts: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (reached, right) int64 [n_drafts] over one greedy answer."""
    engine.clear(SLOT)
    text, drafts, start = list(prompt), [], 0
    for _ in range(n_new + n_drafts):
        window = Window.of([Segment(SLOT, start, tuple(text[start:]), 1)], keep=True, for_drafts=True)
        text.append(read_row(engine.submit(window).result()[0]).best)
        kept = np.array([window.n_rows], np.int32)
        engine.draft_layer.build([KeptRows(window, kept, (tuple(text[start + 1 :]),))])
        start = len(text) - 1
        if len(drafts) < n_new:
            drafts.append(_chain(engine, n_drafts))
    reached, right = np.zeros(n_drafts, np.int64), np.zeros(n_drafts, np.int64)
    for at, chain in enumerate(drafts, start=len(prompt) + 1):
        for depth, token in enumerate(chain):
            reached[depth] += 1
            if token != text[at + depth]:
                break
            right[depth] += 1
    return reached, right


def _chain(engine: Engine, n_drafts: int) -> list[int]:
    tokens: list[int] = []
    for _ in range(n_drafts):
        tokens.append(int(engine.draft_layer.propose([SLOT], tokens[-1:] or None).tokens[0]))
    return tokens
