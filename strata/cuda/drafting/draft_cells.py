"""The draft layer's cells on a card, with the positions that each slot has, and the kernels that keep them.

Cells lie at their positions, as on the host; `places` lists a slot's positions, ascending, so that a slot may lack some.
`counts` are cells that the kernels see: a chain's cells are counted by the step that makes them, and the next real cells
overwrite them.  Flat shapes: places int32 [slots, cells]; streams float32 [slots, C * H].

    launch_note     places of new cells: row r is the cell of rank counts[r] - 1 of its slot
    launch_list     chosen [rows, width] = the cells of each row's slot, its own cell last; notes that one too
    launch_move     rows of streams from one array to another

Does not know: arithmetic, windows.
"""

from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.attention.cells import CELL_FORMATS
from strata.cuda.attention.heads import AttentionCells
from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.machine.seam import Target, kernel, launch_dependents, wait_for_dependency
from strata.cuda.stage.sessions import CELL_TYPES, LEAST, NOT_A_NUMBER
from strata.model.config import ModelConfig

THREADS = 256
PURPOSE = "draft cells"


@cache
def note_kernel(target: Target):
    """Return kernel(places, n_cells, slots, positions, counts, n_rows): a thread per row."""
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(THREADS)
    def run(places, n_cells, slots, positions, counts, n_rows):
        go_on()
        wait_before()
        row = np.int32(cuda.grid(1))
        if row < n_rows:
            places[np.int64(slots[row]) * n_cells + counts[row] - 1] = positions[row]

    return run


@cache
def list_kernel(target: Target):
    """Return kernel(places, n_cells, slots, positions, counts, width, chosen); grid (width / THREADS, rows)."""
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(THREADS)
    def run(places, n_cells, slots, positions, counts, width, chosen):
        go_on()
        wait_before()
        i, row = np.int32(cuda.grid(1)), np.int32(cuda.blockIdx.y)
        count = counts[row]
        if i >= count:
            return
        at = np.int64(slots[row]) * n_cells + i
        cell = positions[row]
        if i < count - 1:
            cell = places[at]
        else:
            places[at] = cell
        chosen[np.int64(row) * width + i] = cell

    return run


@cache
def move_kernel(target: Target):
    """Return kernel(source, from_rows, into, to_rows, width); grid (width / THREADS, rows); a row to -1 stays where it is."""
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(THREADS)
    def run(source, from_rows, into, to_rows, width):
        go_on()
        wait_before()
        i, row = np.int32(cuda.grid(1)), np.int32(cuda.blockIdx.y)
        target_row = to_rows[row]
        if i < width and target_row >= 0:
            into[np.int64(target_row) * width + i] = source[np.int64(from_rows[row]) * width + i]

    return run


class DraftCells:
    """K/V, places and streams of n_slots sessions of `context` positions.

    `newest` holds the streams of each slot's newest cell as its attention reads them, `own` what the layer's last step left there.
    """

    def __init__(self, device: CudaDevice, config: ModelConfig, kv: str, n_slots: int, context: int) -> None:
        c, form = config, CELL_FORMATS[kv]
        self.device, self.n_slots, self.context, self.width = device, n_slots, context, c.residual_width
        vectors = n_slots * context * c.n_kv_heads
        n_scales = max(LEAST, vectors * (c.head_dim // form.values_per_scale if form.values_per_scale else 0))
        codes = [device.zeros(PURPOSE, vectors * c.head_dim, CELL_TYPES[kv]) for _ in range(2)]
        scales = [device.zeros(PURPOSE, n_scales, np.uint16) for _ in range(2)]
        self.attention = AttentionCells(context, 0, codes[0], scales[0], codes[1], scales[1])
        self.places = device.zeros(PURPOSE, n_slots * context, np.int32)
        self.newest, self.own = (device.zeros(PURPOSE, n_slots * self.width, np.float32) for _ in range(2))

    @property
    def _kv(self) -> tuple:
        a = self.attention
        return a.k_codes, a.k_scales, a.v_codes, a.v_scales

    @property
    def bytes_per_slot(self) -> int:
        return sum(array.size * array.dtype.itemsize for array in (*self._kv, self.places)) // self.n_slots

    def copy_slot(self, source: int, target: int) -> None:
        """Copy everything of one slot to another."""
        for array in (*self._kv, self.places, self.newest, self.own):
            n = array.size // self.n_slots
            if n:
                array[target * n : (target + 1) * n].copy_to_device(array[source * n : (source + 1) * n], stream=self.device.stream)

    def poison(self, slot: int, from_position: int) -> None:
        """Fill a slot's cells from a position on with NaN."""
        for array in self._kv:
            if array.size > LEAST and from_position < self.context:
                each = array.size // (self.n_slots * self.context)
                part = array[(slot * self.context + from_position) * each : (slot + 1) * self.context * each]
                part.copy_to_device(np.full(part.size, NOT_A_NUMBER[array.dtype], array.dtype), stream=self.device.stream)
        self.device.synchronise()


def launch_note(device: CudaDevice, cells: DraftCells, slots, positions, counts, n_rows: int, programmatic: bool = False) -> Launch:
    """places[slot, counts - 1] = position of each row."""
    shape = Shape(((n_rows + THREADS - 1) // THREADS, 1), THREADS)
    arguments = (cells.places, np.int32(cells.context), slots, positions, counts, np.int32(n_rows))
    return Launch(device, note_kernel(device.target), shape, arguments, programmatic)


def launch_list(
    device: CudaDevice, cells: DraftCells, slots, positions, counts, n_rows: int, width: int, chosen, programmatic: bool = False
) -> Launch:
    """chosen [rows, width] = the counts[r] cells of each row's slot, ascending; the last one is the row's own position."""
    shape = Shape(((width + THREADS - 1) // THREADS, n_rows), THREADS)
    arguments = (cells.places, np.int32(cells.context), slots, positions, counts, np.int32(width), chosen)
    return Launch(device, list_kernel(device.target), shape, arguments, programmatic)


def launch_move(device: CudaDevice, source, from_rows, into, to_rows, n_rows: int, width: int, programmatic: bool = False) -> Launch:
    """into[to_rows[r]] = source[from_rows[r]], rows of `width` floats; a row to -1 stays where it is."""
    shape = Shape(((width + THREADS - 1) // THREADS, n_rows), THREADS)
    arguments = (source, from_rows, into, to_rows, np.int32(width))
    return Launch(device, move_kernel(device.target), shape, arguments, programmatic)
