"""Workloads: the conversations that all arms of a comparison continue.

A prompts file is a JSON list; each entry is a list of token ids or an object with `ids`, or with `text` for the model's
own tokenizer, and a `kind` (chat, code, ...) to name it by.  An item is a prompt with the number of tokens wanted.
Does not know: arms, schedules.
"""

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from strata.errors import UsageError
from strata.sampling.settings import Sampling

REMEDY = 'give a JSON list such as [{"kind": "chat", "ids": [1, 2, 3]}, [4, 5, 6]]'


@dataclass(frozen=True, slots=True)
class Item:
    """One conversation: `label` names it in reports, `prompt` token ids, `max_new` tokens wanted.

    `sampling` says how its tokens are chosen; `forced` tokens are fed in the place of its picks (teacher forcing).
    """

    label: str
    prompt: tuple[int, ...]
    max_new: int
    stop_tokens: frozenset[int] = frozenset()
    sampling: Sampling = Sampling()
    forced: tuple[int, ...] | None = None

    @property
    def kind(self) -> str:
        return self.label.rpartition("-")[0]

    def cut(self, length: int) -> "Item":
        """Return the item with the first `length` tokens of its prompt."""
        return replace(self, prompt=self.prompt[:length])


@dataclass(frozen=True, slots=True)
class Workload:
    """Items in a fixed order."""

    items: tuple[Item, ...]

    @property
    def n_prompt_tokens(self) -> int:
        return sum(len(item.prompt) for item in self.items)

    def with_lengths(self, lengths: Sequence[int]) -> "Workload":
        """Return the workload with max_new = lengths[i mod len(lengths)]."""
        return Workload(tuple(replace(item, max_new=lengths[i % len(lengths)]) for i, item in enumerate(self.items)))


def read_prompts(path: Path, model=None) -> tuple[Item, ...]:
    """Read a prompts file; `model` is needed for entries without ids.  Raises UsageError naming the file and the entry."""
    try:
        entries = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"prompts={path}", error.strerror or "it cannot be read", "check the path") from None
    except ValueError as error:
        raise UsageError(f"prompts={path}", f"it is not JSON ({error})", REMEDY) from None
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"prompts={path}", "it is not a list with at least one prompt", REMEDY)
    return tuple(_item(path, number, entry, model) for number, entry in enumerate(entries))


def _item(path: Path, number: int, entry: object, model) -> Item:
    given = entry if isinstance(entry, dict) else {"ids": entry}
    kind, ids = given.get("kind", "prompt"), given.get("ids")
    if ids is None and isinstance(given.get("text"), str) and model is not None:
        from strata.model.tokenizer import read_tokenizer

        ids = read_tokenizer(model.files.keys).encode(given["text"])
    if not isinstance(ids, list) or not all(isinstance(i, int) and not isinstance(i, bool) for i in ids):
        raise UsageError(f"prompts={path} entry {number}", "it has no list of token ids", REMEDY)
    return Item(f"{kind}-{number}", tuple(ids), 0)


def mix(items: Iterable[Item], n: int, seed: int) -> tuple[Item, ...]:
    """Choose n items, the kinds in turn, drawn within each kind by the seed."""
    draw = random.Random(seed)
    by_kind: dict[str, list[Item]] = {}
    for item in items:
        by_kind.setdefault(item.kind, []).append(item)
    for members in by_kind.values():
        draw.shuffle(members)
    chosen: list[Item] = []
    while len(chosen) < n and any(by_kind.values()):
        chosen += [members.pop() for members in by_kind.values() if members]
    return tuple(chosen[:n])
