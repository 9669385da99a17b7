"""A window's index arrays on a card: what changes from window to window while a captured graph stays.

The numbers of rows and of segment places are launch constants; everything else lies in device memory.  Segment places
beyond the window's segments have count 0: their blocks leave at once.  Names as in `strata.rows.Window`.
Does not know: how the arrays get there.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class WindowTables:
    """Device arrays int32: tokens, slots, positions, segment_of_row [n_rows]; first, count, segment_slot [n_segments]."""

    n_rows: int
    n_segments: int
    tokens: Any
    slots: Any
    positions: Any
    segment_of_row: Any
    first: Any
    count: Any
    segment_slot: Any
