"""The scope of a run: what suites build their cases from.

It joins the user's options with the model's dimensions and the prompts, and decides the sizes of the levels: level 1 is
what CI runs in minutes, level 2 takes every prompt whole.  Does not know: suites, engines.
"""

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


@dataclass(frozen=True, slots=True)
class Size:
    """How much a level runs: conversations, tokens of each, prompt tokens kept (0: all; `deep` for one of them)."""

    n_items: int
    max_new: int
    prompt: int
    deep: int


SIZES = {1: Size(n_items=8, max_new=40, prompt=64, deep=288), 2: Size(n_items=32, max_new=150, prompt=0, deep=0)}
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
        asked = {name: getattr(self.options, name) for name in ("devices", "layer_split", "split_device", "rounding", "prefill", "kv", "context", "threads")}
        return EngineSettings(**{**{name: value for name, value in asked.items() if value is not None}, **changes})

    def workload(self, n_items: int | None = None, max_new: int | None = None) -> Workload:
        """Return the level's conversations; the user's own prompts come as they are."""
        n_items, max_new = n_items or self.size.n_items, self.max_new if max_new is None else max_new
        chosen = self.prompts if self.given else mix(self.prompts, n_items, self.options.seed)
        if not self.given and self.size.prompt:
            deepest = max(range(len(chosen)), key=lambda i: len(chosen[i].prompt))
            chosen = tuple(item.cut(self.size.deep if i == deepest else self.size.prompt) for i, item in enumerate(chosen))
        return Workload(tuple(replace(item, max_new=max_new) for item in chosen))


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
