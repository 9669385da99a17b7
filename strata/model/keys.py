"""A model file's metadata: named values with a kind, decoded when they are asked for.

Kinds are `integer`, `float`, `text`, `boolean` and their plurals for arrays.  A getter returns the value or raises a
ModelFileError that names the key; it never converts one kind into another.  Does not know: which keys a model needs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from strata.errors import ModelFileError


@dataclass(frozen=True, slots=True, eq=False)
class Key:
    """One metadata entry: name, kind, and a function that decodes its value."""

    name: str
    kind: str
    decode: Callable[[], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """All metadata of a model, merged over its files; `source` says which files, for messages."""

    entries: Mapping[str, Key]
    source: str

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def integer(self, name: str, default: int | None = None) -> int:
        return self._value(name, "integer", default)

    def number(self, name: str, default: float | None = None) -> float:
        return self._value(name, "float", default)

    def text(self, name: str, default: str | None = None) -> str:
        return self._value(name, "text", default)

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        return tuple(self._value(name, "integers", default))

    def texts(self, name: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        return tuple(self._value(name, "texts", default))

    def _value(self, name: str, kind: str, default: Any) -> Any:
        entry = self.entries.get(name)
        if entry is None:
            if default is not None:
                return default
            raise ModelFileError(
                f"key {name}", f"{self.source} lacks it", "convert the model again with a converter that writes it"
            )
        if entry.kind != kind:
            raise ModelFileError(
                f"key {name}", f"it holds {entry.kind} where {kind} is expected", "convert the model again"
            )
        try:
            return entry.decode()
        except UnicodeDecodeError as error:
            raise ModelFileError(f"key {name}", "its text is not UTF-8", "convert the model again") from error
