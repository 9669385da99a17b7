"""Two quantised weight rows a thread, side by side, for a few activation rows: the inner part of `expert_products.py`.

The order is that of rows.py: a thread is a lane of eight, a lane is a chain over its groups in ascending order, the eight-lane
tree joins them.  Here a thread has a *left* and a *right* weight row of one format, so that the activations are read from shared
memory once for both, and twice the bytes are under way.  A warp has four left and four right rows at a time, a block of WARPS
warps 32 of each: one turn.  Packed bytes come a cut's stages - 1 ahead, each warp waiting for its own alone.

Shared memory of a block: activation rows (codes, then scales and sums), then every warp's stages.
Does not know: which matrices the rows are of, what becomes of the sums.
"""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from strata.cuda.machine.seam import Target, copies, jit, sync_warp
from strata.cuda.packed.readers import reader_of
from strata.cuda.packed.row_parts import pair_step, tree_of_lanes
from strata.cuda.packed.staging import UNIT, activation_bytes, staging_of, weight_fetcher
from strata.formats.contract import WeightFormat

ZERO = np.float32(0.0)
WARPS = 8
THREADS = 32 * WARPS
SIDE_ROWS = 4 * WARPS
"""Left rows, and right rows, of a block's turn."""
PASS_ROWS = 4
"""Activation rows that share one pass over the weights, where there are several."""


@dataclass(frozen=True, slots=True)
class PairCut:
    """How weight rows are cut: units of a stage (0: as staging.py picks them) and stages of a warp."""

    units: int
    stages: int


def cut_of(form: WeightFormat, units: int, most_stages: int, room: int) -> PairCut:
    """Return the cut with as many stages, two at least, as fit into `room` bytes of a block's shared memory."""
    return PairCut(units, max(2, min(most_stages, room // (SIDE_ROWS * 2 * staging_of(form, units).pitch))))


def shared_bytes(form: WeightFormat, cut: PairCut, n_rows: int, n_groups: int) -> int:
    """Return the dynamic shared memory of a block whose passes take n_rows activation rows."""
    return activation_bytes(n_rows, n_groups) + WARPS * slots_of_warp(form, cut)


def slots_of_warp(form: WeightFormat, cut: PairCut) -> int:
    """Return the bytes of one warp's stages."""
    return cut.stages * 8 * staging_of(form, cut.units).pitch


def pair_fetching(form: WeightFormat, cut: PairCut, target: Target) -> SimpleNamespace:
    """Build `begin` and `fetch_next`, which send stages on their way.

    Both carry the *next* stage as (left start, right start, turn, bytes behind the starts); a start is where a row begins,
    counted from `left_from` or `right_from`.  Between turns a start moves on by `stride`, never beyond its last.
    """
    staging, move, n_ahead = staging_of(form, cut.units), copies(target, cut.stages - 2), cut.stages - 1
    fetch, commit = weight_fetcher(staging, 8, target), move.commit
    stage_bytes, pitch = staging.stage_bytes, staging.pitch

    @jit
    def fetch_at(slot, weights, start, moved, row_bytes, lane):
        before = np.int32(start & 15)
        piece = np.int32((before + moved) & -16) + 16 * lane
        fetch(slot + 16 * lane, weights + (start - before + piece), np.int32(before + row_bytes - piece), lane)

    @jit
    def fetch_next(slot, left_from, right_from, upcoming, last, stride, row_bytes, all_bytes, n_turns, lane):
        """Send one stage, if any is left, close its group of copies, and return what comes next."""
        left, right, turn, moved = upcoming
        if turn < n_turns:
            fetch_at(slot, left_from, left, moved, row_bytes, lane)
            fetch_at(slot + 4 * pitch, right_from, right, moved, row_bytes, lane)
            moved = np.int32(moved + stage_bytes)
            if moved == all_bytes:
                moved, turn = np.int32(0), np.int32(turn + 1)
                left, right = min(left + stride, last), min(right + stride, last)
        commit()
        return left, right, turn, moved

    @jit
    def begin(mine, left_from, right_from, left, right, last, stride, row_bytes, all_bytes, n_turns, lane):
        """Send the first stages, but one as many as a warp has."""
        upcoming = (left, right, np.int32(0), np.int32(0))
        for ahead in range(n_ahead):
            upcoming = fetch_next(
                mine + ahead * (8 * pitch), left_from, right_from, upcoming, last, stride, row_bytes, all_bytes, n_turns, lane
            )
        return upcoming

    return SimpleNamespace(begin=begin, fetch_next=fetch_next)


def pair_products(form: WeightFormat, cut: PairCut, n_rows: int, target: Target):
    """Build `multiply(...)`: one turn of n_rows activation rows; returns what is fetched next and the slot after the turn's last.

    left, right float32 [n_rows] start at +0 and end as the sums over the lanes; every thread of a row gets them.
    """
    reader, staging = reader_of(form), staging_of(form, cut.units)
    step, fetch_next = pair_step(reader, form.split_scales, form.has_offset, n_rows), pair_fetching(form, cut, target).fetch_next
    wait = copies(target, cut.stages - 2).wait
    units, unit_bytes, stage_bytes, pitch = staging.units, staging.unit_bytes, staging.stage_bytes, staging.pitch
    groups_per_block, block_bytes, per_stage = staging.groups_per_block, form.block_bytes, 8 * staging.units
    slot_bytes = 8 * pitch
    last_slot = (cut.stages - 1) * slot_bytes

    @jit
    def multiply(
        mine, slot, left_from, right_from, left_start, right_start, upcoming, last, stride, row_bytes, all_bytes, n_groups, n_turns, lane,
        codes_at, marks_at, codes_pitch, marks_pitch, left, right,
    ):
        left_before, right_before = np.int32(left_start & 15), np.int32(right_start & 15)
        block_at, group = (lane // groups_per_block) * block_bytes, lane % groups_per_block
        codes_at, marks_at = codes_at + 16 * lane, marks_at + 8 * lane
        moved, g = np.int32(0), np.int32(lane)
        for r in range(n_rows):
            left[r], right[r] = ZERO, ZERO
        while moved < all_bytes:
            wait()
            sync_warp()
            ahead = slot - slot_bytes if mine < slot else slot + last_slot
            upcoming = fetch_next(ahead, left_from, right_from, upcoming, last, stride, row_bytes, all_bytes, n_turns, lane)
            left_at = slot + (((left_before + moved) & 15) + block_at)
            right_at = slot + (((right_before + moved) & 15) + (block_at + 4 * pitch))
            if n_rows == 1 and np.int32(g - lane + per_stage) <= n_groups:
                for unit in range(units):
                    step(
                        left_at + unit * unit_bytes, right_at + unit * unit_bytes, group, codes_at + unit * UNIT, codes_pitch,
                        marks_at + unit * 64, marks_pitch, left, right,
                    )
            else:
                for unit in range(units):
                    if np.int32(g + 8 * unit) < n_groups:
                        step(
                            left_at + unit * unit_bytes, right_at + unit * unit_bytes, group, codes_at + unit * UNIT, codes_pitch,
                            marks_at + unit * 64, marks_pitch, left, right,
                        )
            moved, g = np.int32(moved + stage_bytes), np.int32(g + per_stage)
            codes_at, marks_at = codes_at + units * UNIT, marks_at + units * 64
            slot = slot + slot_bytes if slot < mine + last_slot else mine
        for r in range(n_rows):
            left[r], right[r] = tree_of_lanes(left[r]), tree_of_lanes(right[r])
        return upcoming, slot

    return multiply
