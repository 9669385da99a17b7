"""The canonical tax: the hottest products against twins of the same tile with a free order, on the synthetic model's weights.

Does not know: what a twin leaves out (free_order.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from strata.bench.gpu.clocks import launch_us
from strata.bench.gpu.free_order import Freer, free_one_row
from strata.bench.gpu.recorded import name_of
from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch
from strata.cuda.floats import float_one_row
from strata.cuda.machine.shapes import shared_room
from strata.cuda.memory.placed import CardStage
from strata.cuda.packed import products
from strata.errors import DeviceError
from strata.formats.table import FORMATS

PURPOSE = "rows of the canonical tax"
MOST_WIDE = 4


@dataclass(frozen=True, slots=True)
class Tax:
    """A product: microseconds in the contract's order and in a free one."""

    name: str
    us: float
    free_us: float

    @property
    def percent(self) -> float:
        """What the contract's order costs, of the free one's time."""
        return 100 * (self.us / self.free_us - 1)


def measure(device: CudaDevice, stage: CardStage, chunk: int, n_times: int) -> list[Tax]:
    """Measure one row of a packed and of a float product, and a chunk of `chunk` rows (0: none) of a packed one."""
    layers = [layer for layer in stage.layers if layer.gdn is not None]
    found = []
    for name, pairs in _cases(device, layers, chunk):
        canonical, free = zip(*pairs, strict=True)
        found.append(Tax(name, launch_us(device, canonical, n_times), launch_us(device, free, n_times)))
    device.give_back(PURPOSE)
    return found


def _cases(device: CudaDevice, layers, chunk: int) -> Iterator[tuple[str, list[tuple[Launch, Launch]]]]:
    packed, freer = [layer.gdn.qkv for layer in layers], Freer()
    shown = f"{FORMATS[packed[0].type_id].name} {packed[0].n_out}x{packed[0].n_in}"
    yield f"one row x {shown}", [packed_pair(device, freer, matrix, 1) for matrix in packed]
    if chunk > products.WINDOW_ROWS:
        yield f"{chunk} rows x {shown}", [packed_pair(device, freer, matrix, chunk) for matrix in packed[:MOST_WIDE]]
    down = [mixer.down for layer in layers for mixer in (layer.attention_mixer, layer.moe_mixer)]
    if float_one_row.takes(down[0].type_name, down[0].n_in, shared_room(device.card.capability)):
        yield f"one row x {down[0].type_name} {down[0].n_out}x{down[0].n_in}", [float_pair(device, matrix) for matrix in down]


def packed_pair(device: CudaDevice, freer: Freer, matrix, n_rows: int) -> tuple[Launch, Launch]:
    """Return a packed product of random rows and its twin; both write the array that is their last argument.

    Raises DeviceError where exchanging the arithmetic changed nothing: there would be no twin to compare with.
    """
    coded, out = products.make_coded(device, PURPOSE, n_rows, matrix.n_in), device.empty(PURPOSE, n_rows * matrix.n_out, np.float32)
    products.code(device, _rows(device, n_rows, matrix.n_in), coded, n_rows).go()
    device.synchronise()
    launch, twin = products.dense(device, matrix, coded, n_rows, out), freer.of(products.dense)(device, matrix, coded, n_rows, out)
    if twin.dispatcher is launch.dispatcher:
        raise DeviceError(f"the twin of {name_of(launch)}", "it is the kernel itself", "name what it computes with in free_order.py")
    return launch, twin


def float_pair(device: CudaDevice, matrix) -> tuple[Launch, Launch]:
    """Return a float product of a random row and its twin; both write the array that is their last argument.

    The row is one that `float_one_row` takes.
    """
    x, out = _rows(device, 1, matrix.n_in), device.empty(PURPOSE, matrix.n_out, np.float32)
    launch = products.floats(device, matrix.type_name, matrix.raw, matrix.n_in, matrix.n_out, x, 1, out)
    kernel = free_one_row(matrix.type_name, matrix.n_in, device.target)
    return launch, Launch(device, kernel, launch.shape, (matrix.raw, np.int32(matrix.n_out), x, out))


def _rows(device: CudaDevice, n_rows: int, n_in: int):
    return device.upload(PURPOSE, np.random.default_rng(1).standard_normal(n_rows * n_in).astype(np.float32))
