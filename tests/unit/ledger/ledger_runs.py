"""Small runs of the shipped model with ledgers, and a case of two arms for the search.

Does not know: what is tested.
"""

from dataclasses import replace
from functools import cache

from harness.arms import Arm
from harness.drafts import DraftScript
from harness.ledger.ledger import Ledger
from harness.ledger.records import Records, read_records
from harness.options import Options
from harness.scope import open_scope
from harness.suites.contract import Case
from harness.workload import Workload
from strata.batch.engine import Engine
from strata.batch.requests import Batch, Request
from strata.batch.settings import EngineSettings

CONTEXT = 384
LENGTHS = (9, 5, 12)
MAX_NEW = 5


@cache
def shipped():
    """The shipped model and its scope."""
    return open_scope(Options())


def prompts(lengths: tuple[int, ...] = LENGTHS) -> list[tuple[int, ...]]:
    """The first tokens of shipped prompts: the longest ones first read, so that any length is there."""
    longest = sorted(shipped()[1].prompts, key=lambda item: -len(item.prompt))
    return [item.prompt[:length] for item, length in zip(longest, lengths, strict=False)]


def requests(lengths: tuple[int, ...] = LENGTHS, max_new: int = MAX_NEW, **changes) -> list[Request]:
    return [Request(prompt, max_new, **changes) for prompt in prompts(lengths)]


def run(asked: list[Request], probe=None, **settings) -> Batch:
    """What the requests get from an engine with these settings."""
    with Engine(shipped()[0], EngineSettings(**{"context": CONTEXT, "threads": 1, **settings}), probe) as engine:
        return engine.generate(asked)


def drafted(pattern: str, width: int = 4) -> list[Request]:
    """The requests with drafts made from their plain answers."""
    plain, script = run(requests()).answers, DraftScript(width, pattern)
    vocabulary = shipped()[0].config.vocabulary
    return [
        replace(request, drafts=script.source(i, plain[i].tokens, vocabulary), window_rows=width) for i, request in enumerate(requests())
    ]


def recorded(asked: list[Request] | None = None, level: int = 2, ledger: Ledger | None = None, **settings) -> Records:
    """The records of a run; the requests as they stand where none are given."""
    ledger = ledger or Ledger(level)
    run(asked if asked is not None else requests(), ledger, **settings)
    return read_records([ledger])


def case(lengths: tuple[int, ...] = (12, 7), max_new: int = 4, left: dict | None = None, **right) -> Case:
    """Each request alone against arms with settings: by default in two slots over two stages of one device."""
    items = tuple(
        replace(item, prompt=prompt, max_new=max_new)
        for item, prompt in zip(shipped()[1].prompts, prompts(lengths), strict=False)
    )
    plain = EngineSettings(context=CONTEXT, threads=1, **(left or {}))
    settings = {"batch": 2, "layer_split": (6,), "split_device": (0,), **right}
    return Case("small", Workload(items), Arm("alone", plain, alone=True), Arm("together", replace(plain, **settings)), ())
