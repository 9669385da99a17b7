"""A window as the executor recorded it: its launches, the layer that each belongs to, and the bytes that each must move.

`record` has the executor prepare a window and watches the window pass: where a layer begins, and how large the buffers are that
it asks for.  Does not know: time, bytes of launches.
"""

from dataclasses import dataclass

import numpy as np

from strata.cuda.card.launch import Launch
from strata.cuda.memory.workspace import Workspace
from strata.cuda.packed.products import Coded, Lists
from strata.cuda.stage.executor import CudaExecutor
from strata.cuda.stage.programs import Program
from strata.formats.contract import GROUP
from strata.rows import Window
from strata.windows.stage_pass import pass_blocks

EMBED, GDN, QSA, HEAD = "embedding", "gdn", "qsa", "head"
NGRAM = "gdn with n-grams"


class SizedWorkspace(Workspace):
    """A workspace that remembers how much of each buffer was asked for last: `asked`, address -> bytes."""

    def __init__(self, device, purpose: str) -> None:
        super().__init__(device, purpose)
        self.asked: dict[int, int] = {}
        self.names: dict[int, str] = {}
        self.asked_lists: Lists | None = None

    def get(self, name: str, n_values: int, dtype=np.float32):
        array = super().get(name, n_values, dtype)
        self._note(name, array, n_values * array.dtype.itemsize)
        return array

    def coded(self, name: str, n_rows: int, n: int) -> Coded:
        coded = super().coded(name, n_rows, n)
        for array, n_bytes in ((coded.codes, n), (coded.turned, n), (coded.scales, n // GROUP * 4), (coded.sums, n // GROUP * 4)):
            self._note(name, array, n_rows * n_bytes)
        return coded

    def lists(self, name: str, n_experts: int, n_entries: int) -> Lists:
        self.asked_lists = super().lists(name, n_experts, n_entries)
        return self.asked_lists

    def _note(self, name: str, array, n_bytes: int) -> None:
        self.asked[address_of(array)], self.names[address_of(array)] = n_bytes, name


def address_of(array) -> int:
    """Return where a device array begins; in the simulator, where its stand-in does."""
    plain = getattr(array, "_ary", None)
    return int(plain.ctypes.data if plain is not None else array.device_ctypes_pointer.value)


def is_array(argument) -> bool:
    """Whether an argument of a launch is an array."""
    return hasattr(argument, "dtype") and hasattr(argument, "copy_to_host")


class Marked:
    """A recorder for the window pass that notes where layers begin."""

    def __init__(self, recorder) -> None:
        self._recorder, self.marks = recorder, [(0, EMBED, -1)]
        self._layer = None

    def __getattr__(self, name: str):
        return getattr(self._recorder, name)

    def ngram(self, layer: int, residual) -> None:
        self._enter(layer, NGRAM)
        self._recorder.ngram(layer, residual)

    def read_streams(self, layer: int, point: str, mixer, residual):
        if layer != self._layer:
            self._enter(layer, QSA if self._recorder.config.is_qsa(layer) else GDN)
        return self._recorder.read_streams(layer, point, mixer, residual)

    def head(self, residual):
        self.marks.append((len(self._recorder.launches), HEAD, -1))
        return self._recorder.head(residual)

    def _enter(self, layer: int, kind: str) -> None:
        self._layer = layer
        self.marks.append((len(self._recorder.launches), kind, layer))


@dataclass(frozen=True, slots=True)
class Section:
    """Consecutive launches of one layer, of the embedding or of the head."""

    kind: str
    layer: int
    launches: tuple[Launch, ...]


class WatchedPass:
    """The window pass through the whole model; `marks` and `lists` are those of the latest recording."""

    def __init__(self) -> None:
        self.marks: list[tuple[int, str, int]] = []
        self.lists: Lists | None = None

    def __call__(self, recorder, residual):
        marked = Marked(recorder)
        logits = pass_blocks(marked, residual)
        self.marks, self.lists = marked.marks, recorder.work.asked_lists
        return logits


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A window's program and its sections, in order."""

    window: Window
    program: Program
    sections: tuple[Section, ...]

    @property
    def n_launches(self) -> int:
        return len(self.program.launches)

    def of_kind(self, kind: str) -> list[Section]:
        return [section for section in self.sections if section.kind == kind]

    def per_layer(self, kind: str) -> float:
        """Launches of a layer of a kind, on average."""
        sections = self.of_kind(kind)
        return sum(len(section.launches) for section in sections) / len(sections) if sections else 0.0

    @property
    def kernels_per_layer(self) -> float:
        """Launches over layers, embedding and head left out."""
        layers = [section for section in self.sections if section.layer >= 0]
        return sum(len(section.launches) for section in layers) / len(layers)


def record(executor: CudaExecutor, window: Window, watched: WatchedPass) -> Recorded:
    """Have the executor prepare a window of the whole model, and say which launch belongs where."""
    program = executor.prepare(window, watched)
    ends = [at for at, _, _ in watched.marks[1:]] + [len(program.launches)]
    sections = (Section(kind, layer, program.launches[at:end]) for (at, kind, layer), end in zip(watched.marks, ends, strict=True))
    return Recorded(window, program, tuple(sections))


def name_of(launch: Launch) -> str:
    """Return the name of the function that made a launch's kernel."""
    function = getattr(launch.dispatcher, "py_func", launch.dispatcher)
    name = getattr(function, "__qualname__", type(function).__name__).split(".<locals>")[0]
    return name.removesuffix("_kernel")
