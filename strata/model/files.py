"""Finds and opens the files of one model: a file, a folder, shards, and the draft layer's file beside them.

Every file is mapped, never read whole; its tensors are views.  The files of a model have disjoint tensor names and
agree in the keys that they share.  Shards carry `-00001-of-0000N` before `.gguf`; naming one of them names all.  The
draft layer may live in `<model>-mtp.gguf` beside `<model>.gguf` and is picked up by itself.  Does not know: which
tensors and keys a model needs.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from strata.errors import ModelFileError
from strata.model.keys import Key, Keys
from strata.model.tensor import Tensor

if TYPE_CHECKING:
    from strata.model.gguf_header import Header

ARCHITECTURE = "qwen4exp"
DRAFT_SUFFIX = "-mtp"

_ARCHITECTURE_KEY = "general.architecture"
_SHARD = re.compile(r"(?P<stem>.+)-(?P<index>\d{5})-of-(?P<count>\d{5})$")
_PER_FILE_KEYS = ("general.", "split.")
"""Keys that may differ between the files of one model."""


@dataclass(frozen=True, slots=True, eq=False)
class ModelFiles:
    """The opened files of one model: paths in reading order, merged keys, tensors by name."""

    paths: tuple[Path, ...]
    keys: Keys
    tensors: Mapping[str, Tensor]

    @property
    def folder(self) -> Path:
        """Where files that accompany the model are looked for."""
        return self.paths[0].parent


def open_model(path_or_paths: str | Path | Iterable[str | Path]) -> ModelFiles:
    """Open a model from a file, a folder or several files; raises ModelFileError for anything unsound."""
    given = [path_or_paths] if isinstance(path_or_paths, (str, Path)) else list(path_or_paths)
    paths = find_files(Path(item) for item in given)
    if all(path.stem.endswith(DRAFT_SUFFIX) for path in paths):
        raise ModelFileError(
            f"{paths[0]}",
            "it holds a draft layer only and the model is not beside it",
            "name the model's main file too",
        )
    from strata.model.gguf_header import read_header

    headers = [read_header(path) for path in paths]
    for header in headers:
        _check_architecture(header)
    _check_split(headers)
    return ModelFiles(paths, _merged_keys(headers), _merged_tensors(headers))


def find_files(given: Iterable[Path]) -> tuple[Path, ...]:
    """The files that `given` stands for: folders expanded, shards completed, draft files added, none twice."""
    found: dict[Path, None] = {}
    for path in given:
        for member in _members(path):
            found.setdefault(member)
    if not found:
        raise ModelFileError("no model file", "the list of paths is empty", "name a .gguf file or a folder of them")
    return tuple(found)


def _members(path: Path) -> Iterable[Path]:
    if path.is_dir():
        files = sorted(path.glob("*.gguf"), key=lambda file: (file.stem.endswith(DRAFT_SUFFIX), file.name))
        if not files:
            raise ModelFileError(f"{path}", "the folder holds no .gguf file", "name the folder of a model")
        return (member for file in files for member in _with_shards(file))
    return _with_shards(path)


def _with_shards(path: Path) -> Iterable[Path]:
    match = _SHARD.match(path.stem)
    stem = match["stem"] if match else path.stem
    shards = [path]
    if match:
        count = int(match["count"])
        shards = [path.with_name(f"{stem}-{index:05d}-of-{count:05d}.gguf") for index in range(1, count + 1)]
    for shard in shards:
        _require_file(shard, shard != path)
    if stem.endswith(DRAFT_SUFFIX):
        return [*_main_files(path.with_name(stem.removesuffix(DRAFT_SUFFIX))), *shards]
    draft = path.with_name(f"{stem}{DRAFT_SUFFIX}.gguf")
    return [*shards, draft] if draft.is_file() else shards


def _main_files(stem: Path) -> list[Path]:
    """The trunk's files that a draft layer's file belongs to: `<stem>.gguf`, or its shards; may be none."""
    whole = stem.with_name(f"{stem.name}.gguf")
    if whole.is_file():
        return [whole]
    for file in sorted(stem.parent.glob("*.gguf")):
        match = _SHARD.match(file.stem)
        if match and match["stem"] == stem.name:
            return [shard for shard in _with_shards(file) if _SHARD.match(shard.stem)]
    return []


def _require_file(path: Path, is_other_shard: bool) -> None:
    if path.is_file():
        return
    if is_other_shard:
        raise ModelFileError(f"{path}", "this shard of the model is missing", "put all shards into one folder")
    raise ModelFileError(f"{path}", "there is no such file", "check the path, or name a folder that holds the model")


def _check_architecture(header: "Header") -> None:
    keys = Keys(header.keys, f"{header.path}")
    if _ARCHITECTURE_KEY not in keys and keys.integer("split.no", 0) > 0:
        return  # only the first shard has to carry the model's keys
    name = keys.text(_ARCHITECTURE_KEY)
    if name != ARCHITECTURE:
        raise ModelFileError(
            f"{header.path}", f"its architecture is {name}, not {ARCHITECTURE}", f"use a {ARCHITECTURE} model file"
        )


def _check_split(headers: list["Header"]) -> None:
    """Files that say they are shards must be complete, by their own count and by the number of tensors."""
    shards = [header for header in headers if "split.count" in header.keys]
    for header in shards:
        keys = Keys(header.keys, f"{header.path}")
        count = keys.integer("split.count")
        if len(shards) != max(count, 1):
            raise _incomplete(header.path, f"it is one of {count} shards and {len(shards)} are here")
        n_tensors = sum(len(shard.tensors) for shard in shards)
        expected = keys.integer("split.tensors.count", n_tensors)
        if n_tensors != expected:
            raise _incomplete(header.path, f"the model has {expected} tensors and its shards hold {n_tensors}")


def _incomplete(path: Path, why: str) -> ModelFileError:
    return ModelFileError(
        f"{path}", why, "put all shards into one folder, under the names that they were published with"
    )


def _merged_keys(headers: list["Header"]) -> Keys:
    merged: dict[str, Key] = {}
    origin: dict[str, Path] = {}
    for header in headers:
        for name, key in header.keys.items():
            if name not in merged:
                merged[name], origin[name] = key, header.path
            elif not name.startswith(_PER_FILE_KEYS) and key.decode() != merged[name].decode():
                raise ModelFileError(
                    f"key {name}",
                    f"{origin[name]} and {header.path} disagree on it",
                    "name the files of one model only",
                )
    return Keys(merged, ", ".join(str(header.path) for header in headers))


def _merged_tensors(headers: list["Header"]) -> dict[str, Tensor]:
    merged: dict[str, Tensor] = {}
    for header in headers:
        for tensor in header.tensors:
            if tensor.name in merged:
                raise ModelFileError(
                    f"tensor {tensor.name}",
                    f"{merged[tensor.name].path} and {header.path} both hold it",
                    "name the files of one model only",
                )
            merged[tensor.name] = tensor
    return merged
