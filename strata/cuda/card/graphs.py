"""Captured graphs: a sequence of launches as one driver call, rebuilt and never replayed when a buffer has moved.

A graph is kept under a key (rows of a window, class of the context) together with every parameter of its launches.  Asked
for with launches whose parameters differ (a buffer was freed, grown or swapped), it is captured anew.  What changes from
step to step (slots, positions, lengths, lists) lies in device memory at fixed addresses.  Does not know: windows.
"""

from collections.abc import Callable, Hashable, Sequence

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.found import _checked
from strata.cuda.card.launch import Launch, send
from strata.cuda.machine.seam import SIMULATED

GRAPHS = "graphs"
"""The purpose to which the driver's memory for graphs is accounted."""


class Graph:
    """An instantiated graph of launches."""

    def __init__(self, device: CudaDevice, launches: Sequence[Launch]) -> None:
        self.device, self.launches = device, tuple(launches)
        self.addresses = tuple(launch.addresses for launch in self.launches)
        self._executable = None if SIMULATED or device.is_blueprint else capture(device, lambda: send(self.launches))

    def replay(self, stream=None) -> None:
        """Send the whole graph to a stream (the device's own by default)."""
        if self._executable is None:
            send(self.launches)
            return
        from cuda.bindings import driver

        _checked(driver.cuGraphLaunch(self._executable, int((stream or self.device.stream).handle)))

    def close(self) -> None:
        """Free the graph; it must not be running."""
        if self._executable is not None:
            from cuda.bindings import driver

            with self.device.measured(GRAPHS):
                _checked(driver.cuGraphExecDestroy(self._executable))
            self._executable = None


def capture(device: CudaDevice, send_all: Callable[[], None]):
    """Capture what `send_all` sends to the device's stream; return the executable graph of the driver."""
    from cuda.bindings import driver

    handle = int(device.stream.handle)
    _checked(driver.cuStreamBeginCapture(handle, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
    try:
        send_all()
    finally:
        graph = _checked(driver.cuStreamEndCapture(handle))
    with device.measured(GRAPHS):
        executable = _checked(driver.cuGraphInstantiate(graph, 0))
    _checked(driver.cuGraphDestroy(graph))
    return executable


class GraphTable:
    """Graphs by key; counts captures and replays."""

    def __init__(self, device: CudaDevice) -> None:
        self.device, self.graphs = device, {}
        self.n_captures = self.n_replays = 0

    def run(self, key: Hashable, launches: Sequence[Launch], stream=None) -> None:
        """Replay the graph of a key, capturing it first where there is none or a parameter of its launches changed."""
        graph = self.graphs.get(key)
        if graph is None or graph.launches is not launches and graph.addresses != tuple(l.addresses for l in launches):
            if graph is not None:
                self.device.synchronise()
                graph.close()
            graph = self.graphs[key] = Graph(self.device, launches)
            self.n_captures += 1
        graph.replay(stream)
        self.n_replays += 1

    def forget(self, key: Hashable) -> None:
        """Free the graph of a key, where there is one."""
        graph = self.graphs.pop(key, None)
        if graph is not None:
            self.device.synchronise()
            graph.close()

    def clear(self) -> None:
        """Free every graph."""
        self.device.synchronise()
        for graph in self.graphs.values():
            graph.close()
        self.graphs.clear()
