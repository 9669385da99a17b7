"""The small workloads of the checks: seconds for a suite's case, so that hundreds of faults can be tried.

    tiny    prompts of 13 to 17 tokens (prose: 34, longer than a chunk of 32), 8 tokens each
    deep    one prompt past the selection width, so that attention chooses among blocks, and a short one; 8 tokens each
    wide    what `strata-harness run` takes at level 1

Does not know: suites.
"""

from harness.options import Options
from harness.scope import PROMPTS, Scope
from harness.workload import Item, read_prompts
from strata.model.model import Model

TINY, DEEP, WIDE = "tiny", "deep", "wide"
SHORTEST, STEPS, PROSE = 13, 5, 34
DEEP_PROMPT, DEEP_CONTEXT = 269, 320
"""Prompt tokens: past 259, the fixture's selection width, and not at a block's border."""


def scopes_of(model: Model) -> dict[str, Scope]:
    """Return the scopes by name."""
    prompts = read_prompts(PROMPTS, model)
    tiny = Options(max_new=8, context=96)
    deep = Options(max_new=8, context=DEEP_CONTEXT)
    return {
        TINY: Scope(tiny, model.config, tuple(_tiny(item, i) for i, item in enumerate(prompts))),
        DEEP: Scope(deep, model.config, _deep(prompts), given=True),
        WIDE: Scope(Options(), model.config, prompts),
    }


def _tiny(item: Item, number: int) -> Item:
    return item.cut(PROSE if item.kind == "prose" else SHORTEST + number % STEPS)


def _deep(prompts: tuple[Item, ...]) -> tuple[Item, ...]:
    long = next(item for item in prompts if len(item.prompt) > DEEP_PROMPT)
    return long.cut(DEEP_PROMPT), prompts[0].cut(SHORTEST)
