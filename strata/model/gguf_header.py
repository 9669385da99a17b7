"""Reads one GGUF file's keys and tensor records through the `gguf` library, with every offset checked.

The library reads past the end of a file without noticing and raises whatever numpy raises; here each access is bounded,
and each failure becomes one ModelFileError that names the file.  Importing this module imports `gguf`: import it only
when a file is opened.  Does not know: architectures, shards, which keys a model needs.
"""

import math
import sys
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from gguf.constants import GGUFValueType

from strata.errors import ModelFileError
from strata.formats import table
from strata.formats.floats import FloatFormat
from strata.model.keys import Key
from strata.model.tensor import Tensor

_MAGIC = b"GGUF"
_INTEGERS = {
    GGUFValueType[name] for name in ("UINT8", "INT8", "UINT16", "INT16", "UINT32", "INT32", "UINT64", "INT64")
}
_FLOATS = {GGUFValueType.FLOAT32, GGUFValueType.FLOAT64}


@dataclass(frozen=True, slots=True, eq=False)
class Header:
    """One file's content: keys by name, tensors in file order."""

    path: Path
    keys: dict[str, Key]
    tensors: tuple[Tensor, ...]


def read_header(path: Path) -> Header:
    """Map `path` and read its keys and tensor records; raises ModelFileError for a file that is not sound GGUF."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
        if magic != _MAGIC:
            raise ModelFileError(f"{path}", f"it is not a GGUF file (it begins with {magic!r})", "name a .gguf file")
        reader = _BoundedReader(path)
    except ModelFileError:
        raise
    except (ValueError, KeyError, IndexError, TypeError, OverflowError, MemoryError, OSError) as error:
        raise _damaged(path, f"its header cannot be read ({_one_line(error)})") from error
    if reader.byte_order == "S":
        raise ModelFileError(f"{path}", "its byte order is not this machine's", "convert it to little-endian GGUF")
    if len(reader.found) != int(reader.fields["GGUF.tensor_count"].contents()):
        raise ModelFileError(f"{path}", "this release of gguf does not list its tensors", "install gguf 0.19")
    keys = {name: _key(field) for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    return Header(path, keys, tuple(reader.found))


class _BoundedReader(gguf.GGUFReader):
    """GGUFReader that refuses to read past the end and describes tensors without expanding them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.found: list[Tensor] = []
        super().__init__(path)

    def _get(self, offset, dtype, count=1, override_order=None):
        self._require(offset + np.dtype(dtype).itemsize * int(count))
        return super()._get(int(offset), dtype, int(count), override_order)

    def _require(self, end: int) -> None:
        if end > self.data.size:
            raise _truncated(self._path, f"its header goes on to byte {int(end):,}", self.data.size)

    def _get_field_parts(self, orig_offs, raw_type):
        """Read an array as one part, or one part a string; the library's own loop takes seconds for a vocabulary."""
        if raw_type != GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        item_type, length = self._get(orig_offs, np.uint32), self._get(orig_offs + 4, np.uint64)
        kind, start = GGUFValueType(int(item_type[0])), orig_offs + 12
        if kind is GGUFValueType.STRING:
            size, items = self._strings(start, int(length[0]))
        elif kind in self.gguf_scalar_to_np:
            items = [self._get(start, self.gguf_scalar_to_np[kind], length[0])]
            size = items[0].nbytes
        else:
            raise ValueError(f"an array of {kind.name} values is not supported")
        indices = list(range(2, 2 + len(items)))
        return 12 + size, [item_type, length, *items], indices, [GGUFValueType.ARRAY, kind]

    def _strings(self, start: int, count: int) -> tuple[int, list[np.ndarray]]:
        content = self.data.view(np.ndarray)
        found, at = [], start
        for _ in range(count):
            self._require(at + 8)
            begin = at + 8
            at = begin + int.from_bytes(content[at:begin].tobytes(), sys.byteorder)
            self._require(at)
            found.append(content[begin:at])
        return at - start, found

    def _build_tensors(self, start_offs, fields) -> None:
        names: set[str] = set()
        for field in fields:
            tensor = self._tensor(int(start_offs), field)
            if tensor.name in names:
                raise _damaged(self._path, f"tensor {tensor.name} stands in it twice")
            names.add(tensor.name)
            self.found.append(tensor)

    def _tensor(self, start: int, field) -> Tensor:
        _, name_data, _, dims, raw_type, offset = field.parts
        name = bytes(name_data).decode("utf-8")
        type_name, block_weights, block_bytes = self._type(name, int(raw_type[0]))
        shape = tuple(int(size) for size in reversed(dims.tolist()))
        if not shape or min(shape) < 1 or shape[-1] % block_weights:
            why = f"tensor {name} of shape {list(shape)} does not divide into {type_name} blocks of {block_weights}"
            raise _damaged(self._path, why)
        n_bytes = math.prod(shape) // block_weights * block_bytes
        begin = start + int(offset[0])
        if begin + n_bytes > self.data.size:
            raise _truncated(self._path, f"tensor {name} ends at byte {begin + n_bytes:,}", self.data.size)
        if begin % self.alignment:
            raise _damaged(self._path, f"tensor {name} begins at byte {begin:,}, not at a multiple of {self.alignment}")
        raw = self.data[begin : begin + n_bytes].view(np.ndarray)
        return Tensor(name, type_name, shape, raw, self._path)

    def _type(self, tensor_name: str, type_id: int) -> tuple[str, int, int]:
        try:
            found = table.by_id(type_id)
        except ModelFileError as error:
            raise ModelFileError(
                f"tensor {tensor_name} of {self._path}", f"its {error.what} is unknown", error.remedy
            ) from error
        if isinstance(found, FloatFormat):
            return found.name, 1, found.bytes
        return found.name, found.block_weights, found.block_bytes


def _key(field) -> Key:
    is_array = field.types[0] is GGUFValueType.ARRAY
    kind = _kind(field.types[-1]) + "s" if is_array else _kind(field.types[0])
    return Key(field.name, kind, field.contents)


def _kind(value_type: GGUFValueType) -> str:
    if value_type in _INTEGERS:
        return "integer"
    if value_type in _FLOATS:
        return "float"
    return "text" if value_type is GGUFValueType.STRING else "boolean"


def _damaged(path: Path, why: str) -> ModelFileError:
    return ModelFileError(f"{path}", why, "download or convert the file again")


def _truncated(path: Path, why: str, size: int) -> ModelFileError:
    return _damaged(path, f"it is truncated: {why} but the file has {size:,} bytes")


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())

