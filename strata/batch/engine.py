"""The engine: requests in, answers out, over slots, groups and stages.

An engine owns the stages and their threads; `strata.batch.run` drives requests through it.  Run serially, a submission
computes at once; pipelined, the stages' threads do.  Does not know: operations, devices' kinds.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace

import numpy as np

from strata.batch.fitting import fit
from strata.batch.requests import Batch, Request
from strata.batch.run import Run
from strata.batch.settings import EngineSettings
from strata.batch.validation import check_request
from strata.errors import PoolJobError
from strata.model.file_watch import FileWatch
from strata.model.model import Model
from strata.rows import Segment, Window
from strata.split.devices import usable_cores
from strata.split.engine_tiers import EngineTiers
from strata.split.opening import close_stages, open_stages
from strata.split.pipeline import Pipeline
from strata.split.probes import Probe, attach
from strata.split.stages import HandOff, run_serial
from strata.windows.contract import DraftLayer

LOG = logging.getLogger(__name__)


class Engine:
    """A model opened on devices; a context manager.  One `generate` at a time; `probe` sees every operation's results."""

    def __init__(self, model: Model, settings: EngineSettings, probe: Probe | None = None) -> None:
        self.model, self.settings = model, settings
        self._watch = FileWatch(model.files.paths)
        self.resolved, self.stages = fit(settings, model.config, usable_cores(), lambda resolved: open_stages(model, resolved))
        self.counters: Counter = Counter()
        self._hand_off = HandOff(self.counters)
        self._pipeline = self.tiers = None
        try:
            self.tiers = EngineTiers(model, self.resolved, self.stages)
            self.resolved = replace(self.resolved, chunk_rows=self.tiers.chunk_rows, notes=(*self.resolved.notes, *self.tiers.notes))
            for note in self.resolved.notes:
                LOG.info(note)
            self._say_drafters()
            if probe is not None:
                attach(probe, self.stages)
        except BaseException:
            self.close()
            raise
        if self.resolved.pipelined:
            self._pipeline = Pipeline(self.stages, self._hand_off, self.counters)

    @property
    def draft_layer(self) -> DraftLayer | None:
        """The draft layer, which lives beside the last stage."""
        return self.stages[-1].drafts

    def _say_drafters(self) -> None:
        """Say where slots' drafters are and what they leave free."""
        if not self.resolved.drafts.batch_mtp:
            return
        device, mebibyte = self.stages[-1].executor.device, 2**20
        each = self.draft_layer.cell_bytes_per_slot / mebibyte
        LOG.info("--batch-mtp: %d slot drafters on %s (%.1f MiB of cells each)", self.resolved.n_slots, device.name, each)
        for device in dict.fromkeys(stage.executor.device for stage in self.stages):
            if device.budget_bytes is not None:
                LOG.info("%s: %.1f MiB free", device.name, (device.budget_bytes - device.taken_bytes) / mebibyte)

    def close(self) -> None:
        """Stop threads and release devices."""
        if self._pipeline is not None:
            self._pipeline.close()
            self._pipeline = None
        close_stages(self.stages)
        if self.tiers is not None:
            tiers, self.tiers = self.tiers, None
            tiers.close()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def generate(self, requests: Sequence[Request]) -> Batch:
        """Answer all requests; raises UsageError or RequestError, before anything runs, for one that cannot be served."""
        run = self.start(requests)
        for _ in run.steps():
            pass
        return run.batch()

    def start(self, requests: Sequence[Request]) -> Run:
        """Return a run of the requests to be driven through its `steps`, to their end; raises as `generate` does."""
        for request in requests:
            check_request(request, self.model.config, self.resolved.context)
        return Run(self, requests)

    def score(self, tokens: Sequence[int]) -> np.ndarray:
        """Return the logits of every position of a text, float32 [n, vocabulary]; uses slot 0."""
        check_request(Request(tuple(tokens), 0), self.model.config, self.resolved.context)
        self.clear(0)
        rows = self.resolved.chunk_rows
        parts = [tuple(tokens[at : at + rows]) for at in range(0, len(tokens), rows)]
        windows = [Window.of([Segment(0, i * rows, part, len(part))], keep=True, is_prompt=True) for i, part in enumerate(parts)]
        return np.concatenate([self.submit(window).result() for window in windows])

    def clear(self, slot: int) -> None:
        """Start a new session in a slot, on every stage."""
        for stage in self.stages:
            stage.clear(slot)

    def submit(self, window: Window) -> Future:
        """Run a window, at once or through the pipeline; the future gives its logits.  Raises ModelFileError for a file cut short."""
        self._watch.require_whole()
        self.counters["windows"] += 1
        self.counters["rows"] += window.n_rows
        self.tiers.before_window()
        self.tiers.refill_before(window)
        if self._pipeline is not None:
            return self._pipeline.submit(window)
        future: Future = Future()
        try:
            future.set_result(run_serial(self.stages, self._hand_off, window))
        except PoolJobError as error:
            future.set_exception(error)
        return future

    def abandon(self, window: Window) -> None:
        """Drop what a window that failed left behind, on every stage."""
        for stage in self.stages:
            stage.executor.abandon(window)

    def commit(self, window: Window, kept: np.ndarray) -> None:
        """Keep a prefix of each segment of a verify window, on every stage."""
        for stage in self.stages:
            stage.commit(window, kept)
