"""The golden file: token ids, hashes of logit rows and of operations, with the settings that they were made under.

    format, model (fingerprint of all tensors' bytes and names), rounding, kv, rotary (the table's hash), environment, settings
    items         label, prompt ids, `read` hashes of the logits at every position of the prompt, `tokens` of the greedy
                  continuation and `written` hashes of their rows
    operations    layer, point, hash over all rows of the items named in `operation_items` while their prompts are read

A row's hash is the first 16 of the 32 hexadecimal digits of `strata.numerics.hashing`; `read` and `written` are joined without
a separator.  Does not know: engines, arms.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from strata.errors import UsageError
from strata.model.model import Model

FORMAT = "strata-harness golden 1"
DIGITS = 16
FIELDS = ("format", "model", "rounding", "kv", "rotary", "environment", "settings", "items", "operation_items", "operations")


@dataclass(frozen=True, slots=True)
class GoldenItem:
    """One prompt with the hashes of its rows."""

    label: str
    prompt: tuple[int, ...]
    read: tuple[str, ...]
    tokens: tuple[int, ...]
    written: tuple[str, ...]

    @property
    def n_rows(self) -> int:
        return len(self.read) + len(self.written)


@dataclass(frozen=True, slots=True)
class Golden:
    """A golden record; `operations` maps (layer, point) to a hash, in the order of dataflow."""

    model: str
    rounding: str
    kv: str
    rotary: str
    environment: dict[str, str]
    settings: dict[str, str]
    items: tuple[GoldenItem, ...]
    operation_items: tuple[str, ...]
    operations: dict[tuple[int, str], str]

    @property
    def n_rows(self) -> int:
        return sum(item.n_rows for item in self.items)


def fingerprint(model: Model) -> str:
    """Return a hash of every tensor's name, type, shape and bytes."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(model.files.tensors):
        tensor = model.files.tensors[name]
        digest.update(f"{name} {tensor.type_name} {tensor.shape}\n".encode())
        digest.update(tensor.raw)
    return digest.hexdigest()


def write_golden(path: Path, golden: Golden) -> None:
    """Write a golden file; raises UsageError where that fails."""
    document = {
        "format": FORMAT, "model": golden.model, "rounding": golden.rounding, "kv": golden.kv, "rotary": golden.rotary,
        "environment": golden.environment, "settings": golden.settings,
        "items": [_item_document(item) for item in golden.items],
        "operation_items": list(golden.operation_items),
        "operations": [[layer, point, value] for (layer, point), value in golden.operations.items()],
    }
    try:
        Path(path).write_text(_text(document), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"golden={path}", error.strerror or "it cannot be written", "name another file") from None


def read_golden(path: Path) -> Golden:
    """Read a golden file; raises UsageError for a file that is not one."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"golden={path}", error.strerror or "it cannot be read", "make one with strata-harness record") from None
    except ValueError as error:
        raise UsageError(f"golden={path}", f"it is not JSON ({error})", "make one with strata-harness record") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT or any(name not in document for name in FIELDS):
        raise UsageError(f"golden={path}", f"it is not a {FORMAT} file", "make one with strata-harness record")
    return Golden(
        document["model"], document["rounding"], document["kv"], document["rotary"], document["environment"], document["settings"],
        tuple(_item(item) for item in document["items"]), tuple(document["operation_items"]),
        {(layer, point): value for layer, point, value in document["operations"]},
    )


def _item_document(item: GoldenItem) -> dict:
    return {
        "label": item.label, "prompt": list(item.prompt), "read": "".join(item.read),
        "tokens": list(item.tokens), "written": "".join(item.written),
    }


def _item(document: dict) -> GoldenItem:
    return GoldenItem(
        document["label"], tuple(document["prompt"]), _split(document["read"]), tuple(document["tokens"]), _split(document["written"])
    )


def _split(text: str) -> tuple[str, ...]:
    return tuple(text[at : at + DIGITS] for at in range(0, len(text), DIGITS))


def _text(document: dict) -> str:
    """Return JSON with one line per item and operation: a changed record is a readable difference."""
    lines = []
    for name, value in document.items():
        if isinstance(value, list) and value and not isinstance(value[0], str):
            rows = ",\n  ".join(json.dumps(row, separators=(",", ":")) for row in value)
            lines.append(f" {json.dumps(name)}: [\n  {rows}\n ]")
        else:
            lines.append(f" {json.dumps(name)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
