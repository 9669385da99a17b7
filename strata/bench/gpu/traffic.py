"""The bytes that each launch of a recorded window must move, told from its arguments: each array that it is given counts once.

A matrix counts whole, a bank by its distinct experts, a table by its rows, recurrent state of the slots in use twice (read and
written), a buffer by what the window asked of it, keys and values by the cells that the rows may choose.  Arrays that are not
known (positions, rotary tables) count nothing.  Does not know: time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass

from strata.bench.gpu.floors import load_of
from strata.bench.gpu.recorded import address_of, is_array, name_of
from strata.bench.gpu.specs import Spec
from strata.cuda.card.launch import Launch
from strata.cuda.memory.placed import FloatMatrix, Part, Table
from strata.cuda.packed.products import Packed
from strata.cuda.stage.executor import CudaExecutor
from strata.formats.table import FORMATS
from strata.model.config import ModelConfig
from strata.rows import Window

SCRATCH = ("tops", "totals", "triples")
"""Buffers for more than a window ever uses: what attention's parts hand to its merging counts nothing."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight on the card: its name, what it is told by, its bytes, and for a bank or table those of one entry."""

    name: str
    shown: str
    n_bytes: int
    entry_bytes: int = 0
    is_table: bool = False


def weights_on(stage, weights) -> dict[int, Weight]:
    """Return address -> weight for all of a stage; `weights` is the tree of specs that it was made from."""
    found: dict[int, Weight] = {}
    _pair(stage.embedding, weights.token_embd, found)
    _pair(stage.output, weights.output, found)
    _pair(stage.output_mixer, weights.output_hc, found)
    for layer, specs in zip(stage.layers, weights.layers, strict=True):
        if layer.ngrams is not None:
            _pair(layer.ngrams.table, weights.per_layer_token_embd, found)
        for part, spec in (
            (layer.attention_mixer, specs.attention_mixer), (layer.moe_mixer, specs.moe_mixer), (layer.moe, specs.moe),
            (layer.gdn if layer.qsa is None else layer.qsa, specs.attention), (layer.ngrams, specs.ple),
        ):
            _pair(part, spec, found)
    return found


def _pair(placed, spec, found: dict[int, Weight]) -> None:
    """Note the weights of a placed part under the names of its specs; what has no spec goes by its own name."""
    if placed is None:
        return
    if isinstance(placed, Part):
        names = {f.name for f in fields(spec)} if is_dataclass(spec) else set()
        for name, value in placed.named.items():
            _pair(value, getattr(spec, name) if name in names else name, found)
        return
    name = spec.name if isinstance(spec, Spec) else str(spec)
    if isinstance(placed, Packed):
        one, form = placed.n_out * placed.row_bytes, FORMATS[placed.type_id].name
        found[address_of(placed.raw)] = Weight(name, f"{name} {form} {placed.n_out}x{placed.n_in}", placed.raw.size, one if placed.raw.size > one else 0)
    elif isinstance(placed, FloatMatrix):
        found[address_of(placed.raw)] = Weight(name, f"{name} {placed.type_name} {placed.n_out}x{placed.n_in}", placed.raw.size)
    elif isinstance(placed, Table):
        found.setdefault(address_of(placed.raw), Weight(name, f"{name} {placed.type_name}", placed.raw.size, placed.row_bytes, True))
    elif is_array(placed):
        found[address_of(placed)] = Weight(name, "", placed.size * placed.dtype.itemsize)


class Traffic:
    """Bytes that launches of a window must move.

    positions int32 [rows]; distinct: experts per bank launch, on average over the layers.
    """

    def __init__(self, executor: CudaExecutor, weights: dict[int, Weight], window: Window, distinct: float) -> None:
        self.config: ModelConfig = executor.config
        self.weights, self.asked, self.names = weights, executor.work.asked, executor.work.names
        self.window, self.distinct = window, distinct
        self.load = load_of(self.config, [(s.start, len(s.tokens)) for s in window.segments], 0, distinct)
        self.state, self.cells = dict(_state(executor)), dict(_cells(executor))

    def of(self, launch: Launch) -> int:
        """Return the bytes of a launch's arrays, each counted once."""
        arrays = {address_of(a): a for a in launch.arguments if is_array(a)}
        return int(sum(self._bytes(address, array, name_of(launch)) for address, array in arrays.items()))

    def shown(self, launch: Launch) -> str:
        """Return the kernel's name with the matrices that it reads, or a vector, or the first buffer that it is given."""
        addresses = list(dict.fromkeys(address_of(a) for a in launch.arguments if is_array(a)))
        weights = [self.weights[a] for a in addresses if a in self.weights]
        matrices = [weight.shown for weight in weights if weight.shown]
        if len(matrices) > 1:
            matrices = ["+".join(weight.name for weight in weights if weight.shown)]
        others = [weight.name for weight in weights] or [self.names[a] for a in addresses if a in self.names]
        return " ".join((name_of(launch), *(matrices or others[:1])))

    def weight_bytes(self, launch: Launch) -> int:
        """Return the bytes of the weights and states alone."""
        addresses = {address_of(a) for a in launch.arguments if is_array(a)}
        return int(sum(self._bytes(a, None, "") for a in addresses if a in self.weights or a in self.state))

    def _bytes(self, address: int, array, kernel: str) -> float:
        if address in self.weights:
            return self._weight_bytes(self.weights[address])
        if address in self.state:
            return 2 * len(set(self.window.slots.tolist())) * self.state[address]
        if address in self.cells:
            return self._cell_bytes(self.cells[address], array, kernel)
        return 0 if self.names.get(address) in SCRATCH else self.asked.get(address, 0)

    def _weight_bytes(self, weight: Weight) -> float:
        if weight.is_table:
            n = self.window.n_rows * (1 if weight.name == "embedding" else self.config.n_ple_heads)
            return min(n, weight.n_bytes // weight.entry_bytes) * weight.entry_bytes
        return self.distinct * weight.entry_bytes if weight.entry_bytes else weight.n_bytes

    def _cell_bytes(self, name: str, array, kernel: str) -> float:
        """Cells are written by `heads`, read by `attention`; pooled keys are read by `scores`."""
        size = self.config.kv_width if name == "cells" else self.config.indexer_dim
        n_bytes = size * array.dtype.itemsize
        if kernel == "attention" and name == "cells":
            return self.load.cells * n_bytes
        if kernel == "scores" and name == "pooled":
            return self.load.scored * n_bytes
        if kernel == "heads":
            return self.window.n_rows * n_bytes / (self.config.indexer_block if name == "pooled" else 1)
        return 0


def _state(executor: CudaExecutor) -> Iterator[tuple[int, int]]:
    """Yield (address, bytes of one slot) of each layer's recurrent state."""
    sessions = executor.sessions
    for layer in sessions.gdn_layers:
        for array in (sessions.memory_of(layer), sessions.tail_of(layer)):
            yield address_of(array), array.size * array.dtype.itemsize // sessions.n_slots


def _cells(executor: CudaExecutor) -> Iterator[tuple[int, str]]:
    for cells in executor.sessions.cells.values():
        for array, name in ((cells.k_codes, "cells"), (cells.v_codes, "cells"), (cells.raw, "raw"), (cells.pooled, "pooled")):
            yield address_of(array), name
