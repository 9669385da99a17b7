"""Fetching experts over PCIe: kernels read page-locked host memory into the places of the staging ring.

A row of blocks serves a place: an expert's gate, up and down, each from an address of its own, land one after the other.  Addresses and
sizes are multiples of 16.  Shapes: sources int64 [layers, E, 3]; fetched int32 [places]: experts; buffer uint8.
Does not know: which experts are fetched, and why.
"""

from functools import cache

import numpy as np
from numba import cuda

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.machine.addresses import global_address, global_four_words, store_global_four_words
from strata.cuda.machine.seam import Target, jit, kernel, launch_dependents, wait_for_dependency
from strata.cuda.tier.dispatching import FETCHED, Dispatched, Tables
from strata.cuda.tier.expert_cache import PARTS, PIECE, CardExpertMemory

THREADS = 256
BLOCKS = 8
"""Blocks that copy one expert."""


@jit
def copy_pieces(source, to, n_pieces, first, stride):
    """Copy n_pieces > 0 pieces of 16 bytes: four loads on their way at once, surplus ones of the last piece."""
    last = np.int64(n_pieces - 1)
    for i in range(first, n_pieces, 4 * stride):
        at, bt = PIECE * np.int64(i), PIECE * min(np.int64(i) + stride, last)
        ct, dt = PIECE * min(np.int64(i) + 2 * stride, last), PIECE * min(np.int64(i) + 3 * stride, last)
        a0, a1, a2, a3 = global_four_words(source + at)
        b0, b1, b2, b3 = global_four_words(source + bt)
        c0, c1, c2, c3 = global_four_words(source + ct)
        d0, d1, d2, d3 = global_four_words(source + dt)
        store_global_four_words(to + at, a0, a1, a2, a3)
        store_global_four_words(to + bt, b0, b1, b2, b3)
        store_global_four_words(to + ct, c0, c1, c2, c3)
        store_global_four_words(to + dt, d0, d1, d2, d3)


@cache
def fetch_kernel(target: Target):
    """Return kernel(first_source, sizes, fetched, sources, buffer, ring_from, slot_bytes, gate, up, down); grid (BLOCKS, places).

    first_source is the layer's first number in `sources`, ring_from the ring's first byte; gate, up, down count pieces.
    """
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(THREADS)
    def run(first_source, sizes, fetched, sources, buffer, ring_from, slot_bytes, gate, up, down):
        go_on()
        wait_before()
        place = np.int32(cuda.blockIdx.y)
        if place >= sizes[FETCHED]:
            return
        row, to = first_source + 3 * np.int64(fetched[place]), global_address(buffer) + (ring_from + place * slot_bytes)
        first, stride = np.int32(np.int32(cuda.blockIdx.x) * THREADS + np.int32(cuda.threadIdx.x)), np.int32(BLOCKS * THREADS)
        copy_pieces(sources[row], to, gate, first, stride)
        copy_pieces(sources[row + 1], to + PIECE * np.int64(gate), up, first, stride)
        copy_pieces(sources[row + 2], to + PIECE * (np.int64(gate) + up), down, first, stride)

    return run


def launch_fetch(
    device: CudaDevice, memory: CardExpertMemory, layer: int, place: int, n_experts: int, most: int, tables: Tables, dispatched: Dispatched,
    programmatic: bool = False,
) -> Launch:
    """Fill the ring for a layer, which is number `place` of the stage; at most `most` experts are fetched."""
    pieces = (np.int32(getattr(memory.layers[layer], part).expert_bytes // PIECE) for part in PARTS)
    ring_from = np.int64(memory.n_slots * memory.slot_bytes)
    arguments = (
        np.int64(3 * n_experts * place), dispatched.sizes, dispatched.fetched, tables.sources, memory.buffer, ring_from, np.int64(memory.slot_bytes), *pieces,
    )
    return Launch(device, fetch_kernel(device.target), Shape((BLOCKS, min(most, memory.n_places)), THREADS), arguments, programmatic)
