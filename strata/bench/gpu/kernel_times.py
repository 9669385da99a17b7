"""Where a window's time goes: every launch of a layer timed alone, in a graph of the same launch of all layers.

Each layer's launch reads its own layer's weights, so that what one leaves in the card's cache does not serve the next; where
all of them together fit into the cache, `cached` says so.  Buffers are the window's own and stay in the cache, as they do in the
window.  Times include what starting a launch costs in a graph.  Does not know: how launches were made.
"""

from collections import Counter
from dataclasses import dataclass

from strata.bench.gpu.clocks import launch_us
from strata.bench.gpu.recorded import EMBED, GDN, HEAD, NGRAM, QSA
from strata.bench.gpu.windows import Measured
from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch
from strata.cuda.machine.seam import SIMULATED
from strata.cuda.memory.workspace import PLACES

KINDS = (GDN, QSA, NGRAM, EMBED, HEAD)
LEAST_LAUNCHES, MOST_WIDE = 24, 6
"""Launches of a graph: of narrow windows at least, of prompt chunks at most."""


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One launch of a kind of layer: what it is, its grid and threads, microseconds, bytes it must move, how often a window has it.

    `cached`: the weights of all layers' launches fit into the card's cache together, so that their memory was not measured.
    """

    kind: str
    place: int
    name: str
    grid: tuple[int, int]
    n_threads: int
    us: float
    n_bytes: int
    count: int
    cached: bool

    @property
    def window_us(self) -> float:
        """Microseconds in the whole window."""
        return self.us * self.count

    def copy_us(self, bandwidth: float) -> float:
        """Microseconds that the bytes need at a bandwidth in bytes per second."""
        return 1e6 * self.n_bytes / bandwidth

    def share(self, bandwidth: float) -> float:
        """Share of the bandwidth that is reached."""
        return self.copy_us(bandwidth) / self.us


@dataclass(frozen=True, slots=True)
class Profile:
    """All launches of a window by kind of layer, and the window's time on the card in milliseconds."""

    n_rows: int
    window_ms: float
    kernels: tuple[KernelTime, ...]

    @property
    def sum_ms(self) -> float:
        return sum(kernel.window_us for kernel in self.kernels) / 1e3


def profile(device: CudaDevice, measured: Measured, n_times: int) -> Profile:
    """Time every launch of a measured window; launches of all layers that differ in their addresses only are timed together."""
    groups = grouped(measured)
    times = {key: launch_us(device, _in_graph(launches, measured.speed.n_rows), n_times) for key, launches in groups.items()}
    cache, found = cache_bytes(device), []
    for kind in KINDS:
        sections = [section.launches for section in measured.recorded.of_kind(kind)]
        for place in range(max(map(len, sections), default=0)):
            here = [launches[place] for launches in sections if place < len(launches)]
            keys = [key_of(measured, launch) for launch in here]
            common, _ = Counter(keys).most_common(1)[0]
            one, us = here[keys.index(common)], sum(times[key] for key in keys) / len(keys)
            weights = measured.traffic.weight_bytes(one) * len(groups[common])
            found.append(KernelTime(
                kind, place, measured.traffic.shown(one), one.shape.grid, one.shape.n_threads, us, measured.traffic.of(one), len(here),
                0 < weights <= cache,
            ))
    speed = measured.speed
    return Profile(speed.n_rows, speed.device_ms.median, tuple(found))


def key_of(measured: Measured, launch: Launch) -> tuple:
    """Return what launches of different layers have in common where only their addresses differ."""
    return measured.traffic.shown(launch), id(launch.dispatcher), launch.shape.grid


def grouped(measured: Measured) -> dict[tuple, list[Launch]]:
    """Return the launches of a window by `key_of`."""
    groups: dict[tuple, list[Launch]] = {}
    for launch in measured.recorded.program.launches:
        groups.setdefault(key_of(measured, launch), []).append(launch)
    return groups


def _in_graph(launches: list[Launch], n_rows: int) -> list[Launch]:
    if n_rows > PLACES:
        return launches[:MOST_WIDE]
    return launches * -(-LEAST_LAUNCHES // len(launches))


def cache_bytes(device: CudaDevice) -> int:
    """Return the size of a card's second-level cache."""
    if SIMULATED:
        return 0
    from cuda.bindings import driver

    from strata.cuda.card.found import _checked

    attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE
    return _checked(driver.cuDeviceGetAttribute(attribute, _checked(driver.cuDeviceGet(device.index))))
