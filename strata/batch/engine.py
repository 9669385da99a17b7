"""The engine: requests in, answers out, over slots, groups and stages.

`generate` is a loop of admit, build windows, take results.  A window in flight belongs to one group (decoding) or to one
admission (a prompt chunk); results are taken in the order of submission, so a run is repeatable whatever the threads do.
Run serially, a submission computes at once; pipelined, the stages' threads do.  Does not know: operations, devices' kinds.
"""

import logging
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np

from strata.batch.conversation import Conversation
from strata.batch.requests import Answer, Batch, Request, Step
from strata.batch.settings import WINDOW_ROWS, EngineSettings, Resolved, resolve
from strata.batch.validation import check_request
from strata.model.model import Model
from strata.rows import Segment, Window
from strata.split.devices import usable_cores
from strata.split.opening import close_stages, open_stages
from strata.split.pipeline import Pipeline
from strata.split.probes import Probe, attach
from strata.split.stages import HandOff, run_serial
from strata.windows.picks import read_row

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Flight:
    """A window on its way: its conversations in segment order, whether it is the decode window of a group."""

    window: Window
    conversations: tuple[Conversation, ...]
    is_decode: bool
    future: Future


class Engine:
    """A model opened on devices; a context manager.  One `generate` at a time; `probe` sees every operation's results."""

    def __init__(self, model: Model, settings: EngineSettings, probe: Probe | None = None) -> None:
        self.model, self.settings = model, settings
        self.resolved: Resolved = resolve(settings, model.config, usable_cores())
        for note in self.resolved.notes:
            LOG.info(note)
        self.counters: Counter = Counter()
        self._hand_off = HandOff(self.counters)
        self.stages = open_stages(model, self.resolved)
        if probe is not None:
            attach(probe, self.stages)
        self._pipeline = Pipeline(self.stages, self._hand_off, self.counters) if self.resolved.pipelined else None

    def close(self) -> None:
        """Stop threads and release devices."""
        if self._pipeline is not None:
            self._pipeline.close()
            self._pipeline = None
        close_stages(self.stages)

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

    def start(self, requests: Sequence[Request]) -> "Run":
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
        windows = [Window.of([Segment(0, i * rows, part, len(part))], keep=True) for i, part in enumerate(parts)]
        return np.concatenate([self.submit(window).result() for window in windows])

    def clear(self, slot: int) -> None:
        """Start a new session in a slot, on every stage."""
        for stage in self.stages:
            stage.clear(slot)

    def submit(self, window: Window) -> Future:
        """Run a window, at once or through the pipeline; the future gives its logits."""
        self.counters["windows"] += 1
        self.counters["rows"] += window.n_rows
        if self._pipeline is not None:
            return self._pipeline.submit(window)
        future: Future = Future()
        future.set_result(run_serial(self.stages, self._hand_off, window))
        return future

    def commit(self, window: Window, kept: np.ndarray) -> None:
        """Keep a prefix of each segment of a verify window, on every stage."""
        for stage in self.stages:
            stage.commit(window, kept)


class Run:
    """One run of requests: the waiting, the slots, the windows in flight."""

    def __init__(self, engine: Engine, requests: Sequence[Request]) -> None:
        self.engine, self.requests = engine, requests
        self.counters = engine.counters
        self.counters.clear()
        resolved = engine.resolved
        self.groups = [range(g, resolved.n_slots, resolved.n_groups) for g in range(resolved.n_groups)]
        self.latest_group: range | None = None
        self.slots: list[Conversation | None] = [None] * resolved.n_slots
        self.waiting = deque(enumerate(requests))
        self.flights: deque[Flight] = deque()
        self.answers: dict[int, Answer] = {}
        self.read_seconds = self.decode_seconds = 0.0

    def steps(self) -> Iterator[Step]:
        """Run to the end; yield how far a request has come whenever a prompt chunk was launched or tokens were emitted."""
        while len(self.answers) < len(self.requests):
            yield from self._admit()
            for group in self.groups:
                self._decode(group)
            if self.flights:
                yield from self._take(self.flights.popleft())

    def batch(self) -> Batch:
        """Return the answers, once `steps` has ended."""
        self.counters["holes"] += 0
        answers = tuple(self.answers[i] for i in range(len(self.requests)))
        return Batch(answers, dict(self.counters), self.read_seconds, self.decode_seconds, self.engine.resolved.notes)

    # ---- admission

    def _admit(self) -> Iterator[Step]:
        """Admit what has arrived into free slots; nothing running and nothing arrived lets the next one in."""
        while self.waiting and None in self.slots:
            number, request = self.waiting[0]
            is_idle = not self.flights and all(c is None for c in self.slots)
            if request.arrive_after > self.counters["decode_windows"] and not is_idle:
                return
            self.waiting.popleft()
            yield from self._read(Conversation(number, request, self.slots.index(None)))

    def _read(self, conversation: Conversation) -> Iterator[Step]:
        self.engine.clear(conversation.slot)
        if conversation.request.max_new == 0:
            self.answers[conversation.number] = Answer((), "length")
            return
        self.counters["admissions"] += 1
        self.counters["late_admissions"] += any(c is not None for c in self.slots) and self.counters["decode_windows"] > 0
        self.slots[conversation.slot] = conversation
        conversation.in_flight = True
        chunks = conversation.chunks(self.engine.resolved.chunk_rows)
        self.counters["chunked_prompts"] += len(chunks) > 1
        for segment in chunks:
            self.counters["prompt_chunks"] += 1
            self._launch(Window.of([segment], keep=True), (conversation,), is_decode=False)
            yield Step(conversation.number, segment.start + len(segment.tokens), ())

    # ---- windows

    def _decode(self, group: range) -> None:
        """Launch a group's next window, unless one is in flight."""
        members = [self.slots[slot] for slot in group]
        active = [c for c in members if c is not None]
        if not active or any(c.in_flight for c in active):
            return
        self.counters["windows_with_holes"] += len(active) < len(members)
        self.counters["windows_with_company"] += len(active) > 1
        share = WINDOW_ROWS // len(active)
        segments = [c.next_segment(share) for c in active]
        has_drafts = any(len(segment.tokens) > 1 for segment in segments)
        self.counters["verify_windows"] += has_drafts
        self.counters["decode_windows"] += 1
        self.counters["group_turns"] += self.latest_group not in (None, group)
        self.latest_group = group
        for conversation in active:
            conversation.in_flight = True
        self._launch(Window.of(segments, keep=not has_drafts), tuple(active), is_decode=True)

    def _launch(self, window: Window, conversations: tuple[Conversation, ...], is_decode: bool) -> None:
        started = time.perf_counter()
        self.flights.append(Flight(window, conversations, is_decode, self.engine.submit(window)))
        self._spend(started, is_decode)

    def _take(self, flight: Flight) -> Iterator[Step]:
        started = time.perf_counter()
        n_emitted = [len(c.emitted) for c in flight.conversations]
        logits = flight.future.result()
        if flight.is_decode:
            self._take_window(flight, logits)
        elif len(logits):
            flight.conversations[0].take_prompt(read_row(logits[0]))
            self._settle(flight.conversations[0])
        self._spend(started, flight.is_decode)
        for conversation, n in zip(flight.conversations, n_emitted, strict=True):
            if len(conversation.emitted) > n:
                yield Step(conversation.number, conversation.position, tuple(conversation.emitted[n:]))

    def _take_window(self, flight: Flight, logits: np.ndarray) -> None:
        kept = np.zeros(len(flight.conversations), np.int32)
        for i, conversation in enumerate(flight.conversations):
            first, count = flight.window.first[i], flight.window.count[i]
            try:
                kept[i], accepted = conversation.take_window([read_row(row) for row in logits[first : first + count]])
            except Exception as error:
                conversation.fail(error)
                continue
            self.counters["drafts_offered"] += int(count) - 1
            self.counters["drafts_accepted"] += accepted
            self.counters["rows_rejected"] += int(count) - int(kept[i])
        if not flight.window.keep:
            self.counters["rolled_back_windows"] += bool((kept < flight.window.count).any())
            self.engine.commit(flight.window, kept)
        for conversation in flight.conversations:
            self._settle(conversation)

    def _settle(self, conversation: Conversation) -> None:
        conversation.in_flight = False
        self.counters["tokens"] += 0
        if conversation.is_done:
            self.counters["early_ends"] += any(c is not None and c is not conversation for c in self.slots)
            self.counters["tokens"] += len(conversation.emitted)
            self.answers[conversation.number] = conversation.answer()
            self.slots[conversation.slot] = None

    def _spend(self, started: float, is_decode: bool) -> None:
        seconds = time.perf_counter() - started
        if is_decode:
            self.decode_seconds += seconds
        else:
            self.read_seconds += seconds
