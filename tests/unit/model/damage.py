"""Ways to break a written GGUF file, and what its refusal must look like."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from strata.errors import ModelFileError


def cut(path: Path, n_bytes: int) -> Path:
    """Keep only the first `n_bytes` of a file."""
    path.write_bytes(path.read_bytes()[:n_bytes])
    return path


def set_type_id(path: Path, tensor: str, type_id: int) -> Path:
    """Write another weight type into a tensor's record."""
    content = bytearray(path.read_bytes())
    at = _record(content, tensor)
    (n_dimensions,) = struct.unpack_from("<I", content, at)
    struct.pack_into("<I", content, at + 4 + 8 * n_dimensions, type_id)
    path.write_bytes(content)
    return path


def set_offset(path: Path, tensor: str, offset: int) -> Path:
    """Write another data offset into a tensor's record."""
    content = bytearray(path.read_bytes())
    at = _record(content, tensor)
    (n_dimensions,) = struct.unpack_from("<I", content, at)
    struct.pack_into("<Q", content, at + 8 + 8 * n_dimensions, offset)
    path.write_bytes(content)
    return path


def set_innermost(path: Path, tensor: str, size: int) -> Path:
    """Write another row length into a tensor's record."""
    content = bytearray(path.read_bytes())
    struct.pack_into("<Q", content, _record(content, tensor) + 4, size)
    path.write_bytes(content)
    return path


def rename_in_place(path: Path, old: str, new: str) -> Path:
    """Rename a tensor without moving anything; both names have the same length."""
    content = path.read_bytes()
    before, after = (struct.pack("<Q", len(name)) + name.encode() for name in (old, new))
    if content.count(before) != 1 or len(before) != len(after):
        raise ValueError(f"cannot rename {old} to {new}")
    path.write_bytes(content.replace(before, after))
    return path


def _record(content: bytearray, tensor: str) -> int:
    """Where a tensor's record goes on behind its name: n_dimensions, dimensions, type, offset."""
    name = struct.pack("<Q", len(tensor)) + tensor.encode()
    if content.count(name) != 1:
        raise ValueError(f"{tensor} stands {content.count(name)} times in the file")
    return content.index(name) + len(name)


def refusal(action: Callable[[], object]) -> ModelFileError:
    """The ModelFileError that `action` raises, after checking that it is one line with a remedy."""
    with pytest.raises(ModelFileError) as caught:
        action()
    error = caught.value
    assert "\n" not in str(error)
    assert str(error) == f"{error.what}: {error.why}; {error.remedy}"
    assert error.what and error.why and error.remedy
    assert error.exit_code == 2
    return error
