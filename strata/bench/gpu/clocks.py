"""Time on a card: launches and graphs between two events, and what the host spends beside waiting.

Does not know: what is timed.
"""

import time
from collections.abc import Callable, Sequence

from strata.bench.spread import Spread
from strata.cuda.card.device import CudaDevice
from strata.cuda.card.graphs import Graph
from strata.cuda.card.launch import Launch


class TimedDevice(CudaDevice):
    """A card that adds up how long the host has waited for it, in seconds."""

    waited = 0.0

    def synchronise(self) -> None:
        started = time.perf_counter()
        super().synchronise()
        self.waited += time.perf_counter() - started


def between_events(device: CudaDevice, send: Callable[[], None]) -> float:
    """Return the milliseconds that the card spends on what `send` sends to its stream."""
    begin, end = device.event(timing=True), device.event(timing=True)
    begin.record(device.stream)
    send()
    end.record(device.stream)
    end.synchronize()
    return begin.elapsed_time(end)


def graph_ms(device: CudaDevice, launches: Sequence[Launch], n_times: int) -> Spread:
    """Return milliseconds of a graph of launches, of n_times replays after one."""
    graph = Graph(device, launches)
    try:
        graph.replay()
        device.synchronise()
        return Spread.of([between_events(device, graph.replay) for _ in range(n_times)])
    finally:
        device.synchronise()
        graph.close()


def launch_us(device: CudaDevice, launches: Sequence[Launch], n_times: int) -> float:
    """Return microseconds of one launch in a graph of all of them: the median of n_times replays."""
    return 1e3 * graph_ms(device, launches, n_times).median / len(launches)


def host_us(device: TimedDevice, run: Callable[[], object]) -> tuple[float, float]:
    """Return microseconds by the wall clock for `run`, and of them those in which the host did not wait for the card."""
    device.waited = 0.0
    started = time.perf_counter()
    run()
    wall = time.perf_counter() - started
    return 1e6 * wall, 1e6 * (wall - device.waited)
