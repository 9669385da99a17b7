"""What share of the missed experts should go over PCIe: measured once per device, when it opens.

Three blobs' worth of work is timed: copying into the staging ring, and computing in the pool.  Over the link an expert takes
a copy and a computation, in the pool a computation; both ways work side by side, so the share that ends together is
pool / (pool + link + device).  A host device computes as fast as its pool; what a card computes costs next to nothing.  The figure changes speed only, in mode `device` also which bits are computed.
Does not know: dispatch.
"""

import time
from collections.abc import Callable, Mapping

import numpy as np

from strata.host.expert_memory import ExpertMemory
from strata.host.matrix import Activations, Entries
from strata.host.placed import PlacedMoe

PROBES = 3
SPAN = 32


def probe_share(control: np.ndarray, memory: ExpertMemory, layers: Mapping[int, PlacedMoe]) -> float:
    """Return the share of a device's own link and processor, 0 to 1; the ring's first places are overwritten."""
    layer, placed = next(iter(layers.items()))
    experts = np.arange(min(PROBES, memory.n_places), dtype=np.int32)
    entries = Entries(experts, np.arange(len(experts) + 1, dtype=np.int32), np.zeros(len(experts), np.int32))
    x = Activations(np.ones((1, placed.gate.n_in), np.float32), control, np.full(1, SPAN, np.int32))
    hidden = Activations(np.ones((1, placed.down.n_in), np.float32), control, np.full(1, SPAN, np.int32))

    def compute() -> None:
        for matrix, rows in ((placed.gate, x), (placed.up, x), (placed.down, hidden)):
            matrix.times(rows, True, control, entries)

    link, pool = _best(lambda: memory.stage(layer, experts)), _best(compute)
    return pool / (2 * pool + link)


def probe_card_share(tier) -> float:
    """Return the share of a card's own link, 0 to 1, by experts that it can fetch: one at least; the ring's first places are overwritten."""
    layer = int(np.argmax((tier.sources[:, :, 0] != 0).any(axis=1)))
    experts = np.flatnonzero(tier.sources[layer, :, 0])[: min(PROBES, tier.memory.n_places)].astype(np.int32)
    gate, down = tier.layers[layer].gate, tier.layers[layer].down
    starts, rows = np.arange(len(experts) + 1, dtype=np.int32), np.zeros(len(experts), np.int32)
    values, out = np.ones((1, gate.n_in), np.float32), np.empty((len(experts), down.n_out), np.float32)
    link = _best(lambda: tier.memory.stage(layer, experts))
    pool = _best(lambda: tier.jobs.compute(layer, experts, starts, rows, values, out, False))
    tier.begin_run()
    return pool / (pool + link)


def _best(work: Callable[[], None]) -> float:
    """Return the least seconds of three calls, after one that warms up."""
    work()
    times = []
    for _ in range(PROBES):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return max(min(times), 1e-9)
