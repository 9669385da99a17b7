"""Constants and test vectors, read out of docs/NUMERICS.md, so that the document cannot rot.

Constants stand in tables as | `NAME` | ... | bits |; vectors in fenced blocks that open with ```vectors NAME and hold rows of
words.  Does not know: what they mean.
"""

import re
from functools import cache
from pathlib import Path

import numpy as np

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "NUMERICS.md"


@cache
def text() -> str:
    """The whole document."""
    return DOCUMENT.read_text(encoding="utf-8")


def float32_of(word: str) -> np.float32:
    """The float32 with the given 8 hexadecimal digits."""
    return np.array([int(word, 16)], np.uint32).view(np.float32)[0]


def hex_of(value) -> str:
    """The bits of a float32 as 8 hexadecimal digits, NaN as `nan`."""
    value = np.float32(value)
    return "nan" if np.isnan(value) else f"{int(value.view(np.uint32)):08x}"


@cache
def constants() -> dict[str, np.float32]:
    """Every float32 constant of the tables, by name."""
    found = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([0-9a-f]{8}) \|$", text(), re.MULTILINE)
    return {name: float32_of(word) for name, word in found}


@cache
def double_constants() -> dict[str, float]:
    """Every float64 constant of the tables, by name."""
    found = re.findall(r"\| `(\w+)` \| ([0-9a-f]{16}) (?=\|)", text())
    return {name: float(np.array([int(word, 16)], np.uint64).view(np.float64)[0]) for name, word in found}


@cache
def format_table() -> dict[str, dict[str, str]]:
    """The table of weight formats: per format its columns by heading."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text().splitlines() if re.match(r"\| \w+ \|.*\| \d+ \|$", line)]
    headings = ("format", "id", "weights", "bytes", "family", "d", "s", "q", "offset", "largest I")
    return {row[0]: dict(zip(headings, row, strict=True)) for row in rows if len(row) == len(headings)}


def vectors(name: str) -> list[list[str]]:
    """The rows of a block of test vectors, each a list of words; fails where there are none."""
    found = re.search(rf"^```vectors {name} .*\n((?:.+\n)+?)```$", text(), re.MULTILINE)
    if found is None:
        raise LookupError(f"vectors={name}: docs/NUMERICS.md has no rows of that name; write them")
    return [line.split() for line in found.group(1).splitlines()]


def sequence(s: int, n: int) -> np.ndarray:
    """P(s)_0 .. P(s)_(n-1): float(((37 i + s) mod 193) - 96) / 97, float32."""
    return ((37 * np.arange(n) + s) % 193 - 96).astype(np.float32) / np.float32(97)
