"""The experts of a synthetic model in RAM: banks of the real sizes, filled quickly, and the host's matrices over them.

A bank [experts, bytes of one] is laid out from a template of random blocks of its format (`patterns.py`), each bank from another
block on: every byte lies in memory of its own, as reading must find it, and weights at the same place of two layers differ.
Does not know: cards.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from strata.bench.gpu.floors import BANKS
from strata.bench.gpu.patterns import generated, pattern_of
from strata.bench.gpu.specs import Spec
from strata.cpu_pool.arena import COPIES, Banks, MappedArena
from strata.cpu_pool.page_locks import available_bytes, on_own_pages
from strata.errors import DeviceError
from strata.formats.table import by_name
from strata.host.matrix import Matrix
from strata.model.tensor import Tensor
from strata.model.weights import Weights

TEMPLATE_BLOCKS = 1 << 18
STEP = 7919
"""Blocks between the starts of two banks in the template."""
SPARE_BYTES = 4 << 30
"""RAM left to everything else."""
NOWHERE = Path("synthetic")


@dataclass(frozen=True, slots=True, eq=False)
class LayerExperts:
    """A layer's banks as the host's matrices."""

    gate: Matrix
    up: Matrix
    down: Matrix


class RamArena(MappedArena):
    """Banks in RAM as an arena of copies, all of which may be page-locked."""

    def source(self, layer: int, expert: int) -> tuple[str, int]:
        return COPIES, expert

    def is_resident(self, layer: int, expert: int) -> bool:
        return True

    def lockable(self) -> Mapping[tuple[int, str], np.ndarray]:
        return self.banks.of


def ram_bytes(weights: Weights) -> int:
    """Return the bytes of all experts."""
    return sum(getattr(layer.moe, part).n_bytes for layer in weights.layers for part in BANKS)


def require_ram(weights: Weights) -> None:
    """Raise DeviceError where the experts do not fit into RAM, naming the number of layers that does."""
    asked, free = ram_bytes(weights) + SPARE_BYTES, available_bytes()
    if not free or asked <= free:
        return
    n_fitting = int(max(0, free - SPARE_BYTES) // (ram_bytes(weights) // len(weights.layers)))
    raise DeviceError(
        f"experts of {len(weights.layers)} layers ask for {asked / 1e9:.1f} GB of RAM", f"{free / 1e9:.1f} GB are free",
        f"use --layers {n_fitting}" if n_fitting else "use a machine with more memory",
    )


@cache
def template(type_name: str) -> np.ndarray:
    """Return random blocks of a format, uint8 [TEMPLATE_BLOCKS, bytes of a block]."""
    form = by_name(type_name)
    return generated(pattern_of(type_name), TEMPLATE_BLOCKS * form.block_bytes, form.type_id).reshape(-1, form.block_bytes)


def lay_out(bank: np.ndarray, blocks: np.ndarray, number: int) -> None:
    """Fill a bank uint8 [n] with a template's blocks, round and round from a block of its own on."""
    flat, at = blocks.reshape(-1), 0
    start = number * STEP % len(blocks) * blocks.shape[1]
    while at < bank.size:
        n = min(bank.size - at, flat.size - start)
        bank[at : at + n] = flat[start : start + n]
        at, start = at + n, 0


def banks_in_ram(weights: Weights, n_threads: int) -> Banks:
    """Return every layer's banks in RAM, filled by several threads."""
    specs = {(layer.index, part): getattr(layer.moe, part) for layer in weights.layers for part in BANKS}
    found = {place: on_own_pages((spec.n_bytes,)) for place, spec in specs.items()}
    for spec in specs.values():
        template(spec.type_name)
    with ThreadPoolExecutor(n_threads) as threads:
        jobs = [threads.submit(lay_out, found[place], template(spec.type_name), i) for i, (place, spec) in enumerate(specs.items())]
        for job in jobs:
            job.result()
    return Banks({place: bank.reshape(specs[place].shape[0], -1) for place, bank in found.items()})


def layers_over(weights: Weights, banks: Banks) -> Mapping[int, LayerExperts]:
    """Return the host's matrices over the banks, by layer."""
    return {
        layer.index: LayerExperts(*(_matrix(getattr(layer.moe, part), banks.of[layer.index, part]) for part in BANKS)) for layer in weights.layers
    }


def _matrix(spec: Spec, bank: np.ndarray) -> Matrix:
    return Matrix(Tensor(spec.name, spec.type_name, spec.shape, bank.reshape(-1), NOWHERE))
