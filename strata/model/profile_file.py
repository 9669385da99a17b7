"""The routing profile: which experts are used most, measured beforehand.

A list of (layer, expert) pairs, hottest first, each pair once; it may stop before the coldest.  Two forms exist: JSON
(`layers`, `experts`, `pairs`, `share`) and binary (the pairs alone, as little-endian int32 couples).  A profile fills
caches and never changes an answer.  `write_profile` writes either form.  Does not know: caches, placement, who counts.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from strata.errors import ModelFileError
from strata.model.config import ModelConfig

_REMEDY = "use the profile that was measured on this model"


@dataclass(frozen=True, slots=True, eq=False)
class RoutingProfile:
    """`pairs` [n, 2] int32 (layer, expert), hottest first; `shares` [n] float64 of routed entries, or none."""

    path: Path
    pairs: np.ndarray
    shares: np.ndarray | None


def find_profile(folder: Path) -> Path | None:
    """The profile that lies beside a model: `*profile.json`, else `*profile.bin`; none if there is not exactly one."""
    for pattern in ("*profile.json", "*profile.bin"):
        found = sorted(folder.glob(pattern))
        if found:
            return found[0] if len(found) == 1 else None
    return None


def read_profile(path: str | Path, config: ModelConfig) -> RoutingProfile:
    """Read a profile and check that it is one of this model; raises ModelFileError naming what does not fit."""
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"{path}", f"it cannot be read ({error.strerror})", "check the path") from error
    pairs, shares = _from_json(path, content, config) if path.suffix == ".json" else (_from_binary(path, content), None)
    _check_pairs(path, pairs, config)
    return RoutingProfile(path, pairs, shares)


def write_profile(path: str | Path, pairs: np.ndarray, shares: np.ndarray, config: ModelConfig) -> None:
    """Write a profile, binary where the name ends in .bin, else JSON; raises ModelFileError where it cannot be written."""
    path = Path(path)
    if path.suffix == ".bin":
        content = pairs.astype("<i4").tobytes()
    else:
        document = {"layers": config.n_layers, "experts": config.n_experts, "pairs": pairs.tolist(), "share": shares.tolist()}
        content = (json.dumps(document) + "\n").encode()
    try:
        path.write_bytes(content)
    except OSError as error:
        raise ModelFileError(f"{path}", f"it cannot be written ({error.strerror})", "name another file") from error


def _from_binary(path: Path, content: bytes) -> np.ndarray:
    if len(content) % 8:
        raise ModelFileError(f"{path}", f"its {len(content)} bytes are not whole pairs of int32", "copy the file again")
    return np.frombuffer(content, dtype="<i4").astype(np.int32).reshape(-1, 2)


def _from_json(path: Path, content: bytes, config: ModelConfig) -> tuple[np.ndarray, np.ndarray | None]:
    try:
        stored = json.loads(content)
        pairs = np.asarray(stored["pairs"])
        shares = np.asarray(stored["share"], dtype=np.float64) if "share" in stored else None
        sizes = {name: stored[name] for name in ("layers", "experts") if name in stored}
    except (ValueError, KeyError, TypeError) as error:
        raise ModelFileError(
            f"{path}", f"it is not a profile ({type(error).__name__}: {error})", "name a file with `pairs`"
        ) from error
    for name, expected in (("layers", config.n_layers), ("experts", config.n_experts)):
        if sizes.get(name, expected) != expected:
            raise ModelFileError(f"{path}: {name}={sizes[name]}", f"this model has {expected}", _REMEDY)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind != "i":
        raise ModelFileError(f"{path}", "`pairs` is not a list of [layer, expert]", _REMEDY)
    if shares is not None and shares.shape != (len(pairs),):
        raise ModelFileError(f"{path}", f"`share` has {shares.size} entries for {len(pairs)} pairs", _REMEDY)
    return pairs.astype(np.int32), shares


def _check_pairs(path: Path, pairs: np.ndarray, config: ModelConfig) -> None:
    if not len(pairs):
        raise ModelFileError(f"{path}", "it lists no pair", _REMEDY)
    for column, name, size in ((0, "layer", config.n_layers), (1, "expert", config.n_experts)):
        wrong = (pairs[:, column] < 0) | (pairs[:, column] >= size)
        if wrong.any():
            first = pairs[wrong.argmax()]
            raise ModelFileError(
                f"{path}: {name}={first[column]} (pair {wrong.argmax()})",
                f"this model has {size} {name}s, so the profile is of another model",
                _REMEDY,
            )
    flat = pairs[:, 0].astype(np.int64) * config.n_experts + pairs[:, 1]
    values, counts = np.unique(flat, return_counts=True)
    if (counts > 1).any():
        layer, expert = divmod(int(values[counts.argmax()]), config.n_experts)
        raise ModelFileError(f"{path}: layer={layer} expert={expert}", "the pair is listed twice", _REMEDY)
