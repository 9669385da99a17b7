"""How a launch of window_tiles.py is cut: turns, stages, shared memory.  Bits depend on none of it.

Shared memory of a block: where the lanes meet; codes [row], each followed by CODE_PAD bytes; scales, then sums [group][row];
stages of weights.  Does not know: kernels, cards (beyond the shared memory that a block can have).
"""

from dataclasses import dataclass

from strata.cuda.packed.staging import UNIT, staging_of
from strata.formats.table import FORMATS
from strata.numerics.orders import EIGHT

LEAST_ROWS, MOST_ROWS = 5, 8
"""Activation rows of these products; dp4a (rows.py) is quicker for fewer."""
OUTPUTS = 16
THREADS = 32 * EIGHT
COPIERS = THREADS // OUTPUTS
MOST_COPIES = 6
"""Copies of a thread for one stage, at most."""
ONE_WAVE, MOST_TURNS = 396, 8
"""Blocks that a large card holds at once (132 multiprocessors), and turns beyond which a block is not made longer to fit into that."""
FEW_BLOCKS, FEW_BYTES, BYTES = 264, 115_000, 76_700
"""Up to so many blocks two share a multiprocessor, else three: shared memory of a block."""
FEW_HELD, HELD = 2, 3
"""Blocks that a multiprocessor should then hold, if its shared memory does: bounds the registers."""
FEW_STAGES = ((4, 5), (4, 4), (4, 3), (2, 8), (2, 5), (2, 4), (2, 3), (2, 2))
STAGES = ((4, 4), (4, 3), (2, 4), (2, 3), (2, 2))
"""Units of a stage, and stages in flight: the first that fits is taken; of many blocks two stages of whole rows, where these fit."""
VALUE_BYTES, LANE_BYTES = 4 * 33, 4 * 132
"""From one of a thread's four values to the next, and from lane to lane, where they meet: reads and writes without bank conflicts."""
MEETING_BYTES = EIGHT * LANE_BYTES
CODE_PAD = 16
MARK_BYTES = 4 * MOST_ROWS
"""Scales, or sums, of one group."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How a launch is cut: turns of a block, units a stage, stages, blocks a multiprocessor, bytes of shared memory."""

    turns: int
    units: int
    stages: int
    held: int
    shared_bytes: int


def shared_bytes(type_id: int, n_groups: int, units: int, stages: int) -> int:
    """Return the dynamic shared memory of a block, in bytes."""
    n_units = 2 * -(-n_groups // (2 * EIGHT))
    activations = MOST_ROWS * (UNIT * n_units + CODE_PAD) + 2 * MARK_BYTES * EIGHT * n_units
    return MEETING_BYTES + activations + stages * OUTPUTS * staging_of(FORMATS[type_id], units).pitch


def blocks_of(n_out: int, turns: int) -> int:
    """Return the blocks of a matrix."""
    return -(-n_out // (OUTPUTS * turns))


def cut_of(type_id: int, n_groups: int, n_outs: tuple[int, ...], room: int) -> Cut | None:
    """Return the cut for matrices of n_outs outputs, or None where a block would need more shared memory than `room`."""
    turns = max(1, min(MOST_TURNS, -(-sum(n_outs) // (OUTPUTS * ONE_WAVE))))
    few = sum(blocks_of(n, turns) for n in n_outs) <= FEW_BLOCKS
    whole = 2 * -(-n_groups // (2 * EIGHT))
    for most in (min(FEW_BYTES if few else BYTES, room), room):
        for units, stages in FEW_STAGES if few else ((whole, 2), *STAGES):
            n_bytes = shared_bytes(type_id, n_groups, units, stages)
            if n_bytes <= most and staging_of(FORMATS[type_id], units).pieces <= MOST_COPIES * COPIERS:
                return Cut(turns, units, stages, min(FEW_HELD if few else HELD, room // n_bytes), n_bytes)
    return None
