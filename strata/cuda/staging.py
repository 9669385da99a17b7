"""How packed weight rows reach shared memory: pieces of 16 bytes, several stages ahead.

A *unit* is 256 weights of a row (8 groups, one per lane), `unit_bytes` long in the packed file layout.  A *stage* holds
`units` consecutive units of each of a tile's rows.  Rows start anywhere, so a stage's slot holds the aligned 16-byte
pieces that cover it, and `at & 15` bytes of it come before the first one wanted.  Reads stay inside the aligned pieces
that a row touches: an allocation of weights ends at a multiple of 16 bytes.  Does not know: what is computed.
"""

from dataclasses import dataclass

from strata.formats.contract import GROUP, WeightFormat

UNIT = 256
LARGEST_STAGE = 328
"""Bytes of a row per stage, at most, where one unit is not longer."""


@dataclass(frozen=True, slots=True)
class Staging:
    """Constants of a format's stages: bytes per unit, units per stage, bytes between rows in a slot, pieces per row."""

    unit_bytes: int
    units: int
    pitch: int
    pieces: int
    blocks_per_unit: int
    groups_per_block: int

    @property
    def stage_bytes(self) -> int:
        """Bytes of a row per stage."""
        return self.unit_bytes * self.units


def staging_of(form: WeightFormat, units: int = 0) -> Staging:
    """Return the constants for a format; `units` = 0 picks the largest power of two within LARGEST_STAGE."""
    unit_bytes = form.block_bytes * UNIT // form.block_weights
    if not units:
        units = 1
        while 2 * units * unit_bytes <= LARGEST_STAGE:
            units *= 2
    pieces = (15 + unit_bytes * units + 15) // 16
    pitch = 16 * (pieces | 1)
    return Staging(unit_bytes, units, pitch, pieces, UNIT // form.block_weights, form.block_weights // GROUP)
