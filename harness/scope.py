"""The scope of a run: what suites build their cases from.

It joins the user's options with the model's dimensions and the prompts, and decides the sizes of the levels: level 1 is
what CI runs in minutes, level 2 takes whole prompts and long answers, and every prompt where a suite says so.  Does not know: suites, engines.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from harness.options import Options
from harness.workload import Item, Workload, mix, read_prompts
from strata.batch.settings import EngineSettings
from strata.errors import UsageError
from strata.model.config import ModelConfig
from strata.model.model import Model, load_model

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "fixtures" / "strata-mini-mix"
PROMPTS = MODEL / "prompts.json"
CHUNK_ROWS = 32
SHARED = (
    "devices", "layer_split", "split_device", "rounding", "prefill", "kv", "context", "threads", "expert_cache", "expert_profile", "pcie_frac",
    "adapt_every", "adapt_swaps", "adapt_min_gain",
)
"""Options that are settings of every arm, where a suite does not say otherwise."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much a level runs: tokens of each conversation; prompt tokens kept (0: all), `deep` for one that is long.

    `least`: conversations of a case at least, however few would do; `has_all`: cases may ask for every prompt.
    """

    max_new: int
    prompt: int
    deep: int
    least: int
    has_all: bool


SIZES = {
    1: Size(max_new=24, prompt=32, deep=272, least=1, has_all=False),
    2: Size(max_new=150, prompt=0, deep=0, least=8, has_all=True),
}
"""`deep` is past the fixture's selection width (259 cells), so that attention chooses among blocks."""


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """Options, dimensions, and prompts as items; `given` says that the prompts are the user's own."""

    options: Options
    config: ModelConfig
    prompts: tuple[Item, ...]
    given: bool = False

    @property
    def size(self) -> Size:
        return SIZES[self.options.level]

    @property
    def max_new(self) -> int:
        return self.size.max_new if self.options.max_new is None else self.options.max_new

    def settings(self, **changes) -> EngineSettings:
        """Return the settings that every arm shares, with changes; options not given keep the engine's defaults."""
        asked = {name: getattr(self.options, name) for name in SHARED}
        return EngineSettings(**{**{name: value for name, value in asked.items() if value is not None}, **changes})

    def workload(self, n_items: int, all_at_level_2: bool = False) -> Workload:
        """Return n_items conversations, or more where the level says so; the user's own prompts come as they are.

        Fewer items are the first ones of more, so that reference arms are shared.
        """
        chosen = self.prompts
        if not self.given:
            wanted = len(self.prompts) if all_at_level_2 and self.size.has_all else max(n_items, self.size.least)
            chosen = mix(self.prompts, wanted, self.options.seed)
        return Workload(tuple(replace(item, max_new=self.max_new) for item in self._cut(chosen)))

    def chunk_rows(self, work: Workload) -> int:
        """Return rows of a prompt chunk that the workload's longest prompt takes more than one of."""
        longest = max(len(item.prompt) for item in work.items)
        return self.options.prefill or max(1, min(CHUNK_ROWS, longest // 2))

    def _cut(self, items: tuple[Item, ...]) -> Iterator[Item]:
        """Cut prompts to the level's size, the first long one to its depth."""
        if self.given or not self.size.prompt:
            yield from items
            return
        deep = next((i for i, item in enumerate(items) if len(item.prompt) >= self.size.deep), -1)
        for i, item in enumerate(items):
            yield item.cut(self.size.deep if i == deep else self.size.prompt)


def open_scope(options: Options) -> tuple[Model, Scope]:
    """Open the model and read the prompts; raises ModelFileError or UsageError."""
    path = Path(options.model or MODEL)
    if options.model is None and not path.exists():
        raise UsageError(f"model={path}", "the shipped model is not beside the sources", "name one with --model")
    model = load_model(path)
    prompts = read_prompts(Path(options.prompts or _prompts_beside(path)), model)
    return model, Scope(options, model.config, prompts, options.prompts is not None)


def _prompts_beside(path: Path) -> Path:
    folder = path if path.is_dir() else path.parent
    found = folder / PROMPTS.name
    if not found.exists():
        raise UsageError(f"model={path}", f"there is no {PROMPTS.name} beside it", "name a prompts file with --prompts")
    return found
