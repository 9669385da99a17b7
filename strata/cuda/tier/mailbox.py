"""The mailbox of a stage whose experts do not all lie on the card: mapped memory that a card and the CPU pool both read and write.

    headers     int32 [layers, FIELDS]: a layer's message, word FLAG last; overwritten in the next window
    log         int32 [layers, rows * K]: the chosen experts of every row
    job_*       one area for the layer that is being computed: experts int32 [jobs], starts int32 [jobs + 1] from 0, rows int32
                [job entries], values float32 [rows, H], all written only where there are jobs; outputs float32 [job entries, H] come back
    done        int32 [layers]: the step that the pool has answered
    stop        int32 [1]: RUNNING, or why kernels wait no more
    steps       int32 [layers], in the card's own memory: the window that a layer is at, so that a replayed graph needs no argument

A flag is twice the step, plus one where there are jobs: the message of a layer without any is this word.  What grows with the rows of a
window (log, job areas) is there twice: for windows of few rows, where it never moves, and for wider ones, made anew for a wider one yet.  Does not know: launches, who computes jobs.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.cuda.card.device import CudaDevice
from strata.cuda.memory.workspace import PLACES
from strata.model.config import ModelConfig

FIELDS = 16
FLAG, N_ROWS, N_DISTINCT, N_CACHED, N_FETCHED, N_JOBS, JOB_ENTRIES, CACHED_ENTRIES, FETCHED_ENTRIES = range(9)
"""Words of a header."""
RUNNING, ABORTED, GAVE_UP = 0, 1, 2
JOB_SHAPES = 1024
"""Shapes of jobs whose views are remembered."""
STEP_MASK = 0x3FFFFFFF
"""Steps start again at 0 behind this one."""
ROW_STEP = 256
"""Rows by which the areas of prompt chunks grow."""


@dataclass(frozen=True, slots=True, eq=False)
class Mapped:
    """Memory that both see: `card` is an argument of kernels, `host` a numpy array (None on a blueprint)."""

    card: Any
    host: np.ndarray | None


def mapped(device: CudaDevice, n: int, dtype) -> Mapped:
    """Return n values in mapped memory, contents undefined."""
    card = device.mapped(n, dtype)
    if device.is_blueprint:
        return Mapped(card, None)
    return Mapped(card, np.ndarray.view(card, np.ndarray) if isinstance(card, np.ndarray) else np.asarray(card))


@dataclass(frozen=True, slots=True, eq=False)
class Areas:
    """What grows with a window's rows, for up to n_rows of them."""

    n_rows: int
    log: Mapped
    job_experts: Mapped
    job_starts: Mapped
    job_rows: Mapped
    values: Mapped
    outputs: Mapped


class Mailbox:
    """The mailbox of `n_layers` layers, for windows of up to PLACES rows until it has grown."""

    def __init__(self, device: CudaDevice, config: ModelConfig, n_layers: int, purpose: str) -> None:
        self.device, self.config, self.n_layers = device, config, n_layers
        self.headers, self.done = mapped(device, n_layers * FIELDS, np.int32), mapped(device, n_layers, np.int32)
        self.stop = mapped(device, 1, np.int32)
        self.steps = device.zeros(purpose, n_layers, np.int32)
        self._few, self._many = self._made(PLACES), None
        self._jobs: dict[tuple[int, int, int], tuple[np.ndarray, ...]] = {}
        self._clear()

    def areas(self, n_rows: int) -> Areas | None:
        """Return the areas of a window of n_rows; None where it would not fit into those that there are."""
        if n_rows <= PLACES:
            return self._few
        return self._many if self._many is not None and n_rows <= self._many.n_rows else None

    def grow(self, n_rows: int) -> None:
        """Make room for windows of n_rows, more than PLACES; nothing may be running."""
        self._many = self._made(-(-n_rows // ROW_STEP) * ROW_STEP)

    def header(self, place: int) -> np.ndarray:
        """Return a layer's message on the host, int32 [FIELDS]."""
        return self.headers.host[place * FIELDS : (place + 1) * FIELDS]

    def jobs(self, n_rows: int, n_jobs: int, n_entries: int) -> tuple[np.ndarray, ...]:
        """Return the host's views (experts, starts, rows, values, outputs) of jobs of these sizes in a window of n_rows."""
        shape = n_rows, n_jobs, n_entries
        found = self._jobs.get(shape)
        if found is None:
            found = self._viewed(*shape)
            if n_rows <= PLACES and len(self._jobs) < JOB_SHAPES:
                self._jobs[shape] = found
        return found

    def _viewed(self, n_rows: int, n_jobs: int, n_entries: int) -> tuple[np.ndarray, ...]:
        areas, width = self.areas(n_rows), self.config.hidden
        lists = areas.job_experts.host[:n_jobs], areas.job_starts.host[: n_jobs + 1], areas.job_rows.host[:n_entries]
        values, outputs = ((area.host[: n * width].reshape(n, width)) for area, n in ((areas.values, n_rows), (areas.outputs, n_entries)))
        return *lists, values, outputs

    def reset(self) -> None:
        """Start all steps at 0 again; the stream must be idle."""
        self._clear()
        self.steps.copy_to_device(np.zeros(self.n_layers, np.int32))

    def _clear(self) -> None:
        for one in (self.headers, self.done, self.stop):
            if one.host is not None:
                one.host[:] = 0

    def _made(self, n_rows: int) -> Areas:
        c, device = self.config, self.device
        n_entries = n_rows * c.n_used
        n_jobs = min(c.n_experts, n_entries)
        words = (mapped(device, n, np.int32) for n in (self.n_layers * n_entries, n_jobs, n_jobs + 1, n_entries))
        return Areas(n_rows, *words, mapped(device, n_rows * c.hidden, np.float32), mapped(device, n_entries * c.hidden, np.float32))
