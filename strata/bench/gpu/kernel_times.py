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
from strata.cuda.device import CudaDevice
from strata.cuda.launch import Launch
from strata.cuda.seam import SIMULATED
from strata.cuda.workspace import PLACES

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
    """Time every launch of a measured window."""
    found, cache = [], cache_bytes(device)
    for kind in KINDS:
        sections = [section.launches for section in measured.recorded.of_kind(kind)]
        for place in range(max(map(len, sections), default=0)):
            here = [launches[place] for launches in sections if place < len(launches)]
            found.append(_timed(device, measured, kind, place, here, n_times, cache))
    speed = measured.speed
    return Profile(speed.n_rows, speed.device_ms.median, tuple(found))


def _timed(device: CudaDevice, measured: Measured, kind: str, place: int, here: list[Launch], n_times: int, cache: int) -> KernelTime:
    alike, traffic = most_alike(here), measured.traffic
    wide = measured.speed.n_rows > PLACES
    launches = alike[:MOST_WIDE] if wide else alike * -(-LEAST_LAUNCHES // len(alike))
    one, us = alike[0], launch_us(device, launches, n_times)
    weights = traffic.weight_bytes(one)
    return KernelTime(
        kind, place, traffic.shown(one), one.shape.grid, one.shape.n_threads, us, traffic.of(one), len(here),
        0 < weights * len(set(map(id, launches))) <= cache,
    )


def most_alike(launches: list[Launch]) -> list[Launch]:
    """Return the launches of the kernel that most of them have: a first layer may have another one."""
    counts = Counter(id(launch.dispatcher) for launch in launches)
    chosen = counts.most_common(1)[0][0]
    return [launch for launch in launches if id(launch.dispatcher) == chosen]


def cache_bytes(device: CudaDevice) -> int:
    """Return the size of a card's second-level cache."""
    if SIMULATED:
        return 0
    from cuda.bindings import driver

    from strata.cuda.found import _checked

    attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE
    return _checked(driver.cuDeviceGetAttribute(attribute, _checked(driver.cuDeviceGet(device.index))))
