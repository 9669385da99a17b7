"""What a warp of the tile kernels computes in one stage: scales of its rows, then the products of its groups.

Does not know: how a stage got into shared memory, or what becomes of the lanes.
"""

import numpy as np
from numba import cuda

from strata.cuda.machine.seam import Target, jit
from strata.cuda.packed.lifted import PER_ROW
from strata.cuda.packed.staging import rows_are_aligned, staging_of
from strata.cuda.packed.tile_parts import NOTHING, group_products
from strata.cuda.packed.tile_words import tile_reader_of
from strata.cuda.packed.tiles import Layout, Tile
from strata.formats.contract import WeightFormat


def stage_products(form: WeightFormat, tile: Tile, layout: Layout, target: Target):
    """Build `compute(slot, stage, n_groups, count, which, warp, in_warp, low_bits, same, lanes)`.

    slot: address of the stage in shared memory; low_bits: the low four bits of the addresses of this thread's rows, 8 apart, then of the
    one or two rows whose scales it unpacks; lanes: its chains, [lane of the warp][column][band][4].
    """
    staging = staging_of(form, tile.units)
    unpack, gather, multiply = group_products(form, tile, layout, target)
    units, per_warp, n_halves = staging.units, tile.lanes_per_warp, 2 * tile.bands
    n_values, n_words = PER_ROW * n_halves, 2 * n_halves
    per_lane, per_set = 4 * tile.bands * tile.columns, 16 * tile.bands
    pitch, codes_at, code_pitch, marks_at, mark_pitch = layout.pitch, layout.codes_at, layout.code_pitch, layout.marks_at, layout.mark_pitch
    groups_per_block, block_bytes, unit_bytes, stage_bytes = staging.groups_per_block, form.block_bytes, staging.unit_bytes, staging.stage_bytes
    is_aligned, two_each = rows_are_aligned(form), tile.rows_per_thread == 2
    own_word = 8 if tile_reader_of(form).adjacent else 4

    @jit
    def compute(slot, stage, n_groups, count, which, warp, in_warp, low_bits, same, lanes):
        values, words = cuda.local.array(n_values, np.float32), cuda.local.array(n_words, np.int32)
        behind = cuda.local.array(n_halves, np.int32)
        r, j, moved = in_warp >> 2, in_warp & 3, np.int32(stage * stage_bytes)
        own_lane, own_row = per_warp * warp + in_warp // per_set, per_set * which + in_warp % per_set
        own_at = slot + ((own_lane // groups_per_block) * block_bytes + own_row * pitch)
        more_at, rows_at = own_at + 32 * pitch, slot + (per_set * which + r) * pitch
        if not is_aligned:
            own_at, more_at = own_at + ((low_bits[n_halves] + moved) & 15), more_at + ((low_bits[n_halves + 1] + moved) & 15)
        for half in range(n_halves):
            behind[half] = 8 * half * pitch + (0 if is_aligned else (low_bits[half] + moved) & 15)
        for unit in range(units):
            scales_own = scales_more = unpack(NOTHING, own_at + unit * unit_bytes, own_lane % groups_per_block)
            if two_each:
                scales_more = unpack(NOTHING, more_at + unit * unit_bytes, own_lane % groups_per_block)
            for e in range(per_warp):
                lane = per_warp * warp + e
                if np.int32(8 * (stage * units + unit) + lane) < n_groups:
                    gather(scales_own, scales_more, r + per_set * e, values)
                    multiply(
                        rows_at + ((lane // groups_per_block) * block_bytes + unit * unit_bytes), behind, lane % groups_per_block, j,
                        slot + (codes_at + r * code_pitch + own_word * j + 32 * lane + 256 * unit),
                        slot + (marks_at + 2 * j * mark_pitch + 4 * (8 * unit + lane)), count, values, words, same, lanes, e * per_lane,
                    )

    return compute
