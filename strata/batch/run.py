"""A run of requests: the waiting, the slots, the windows in flight.

A loop of admit, build windows, take results.  A window in flight belongs to one group (decoding) or to one admission (a
prompt chunk); results are taken in the order of submission, so a run is repeatable whatever the threads do.  With a proposal
per slot (`batch_mtp`) at most four slots share a window, and more take turns.  Does not know: operations, devices' kinds.
"""

import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np

from strata.batch.conversation import Conversation, shared_share
from strata.batch.draft_settings import SLOTS_PER_WINDOW
from strata.batch.drafter import Drafter
from strata.batch.requests import Answer, Batch, Request, Step
from strata.batch.settings import WINDOW_ROWS
from strata.batch.tier_line import tier_line
from strata.errors import PoolJobError, StrataError
from strata.rows import Segment, Window
from strata.windows.proposals import Proposal

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Flight:
    """A window on its way: its conversations in segment order, their proposals (none: a prompt chunk)."""

    window: Window
    conversations: tuple[Conversation, ...]
    proposals: tuple[Proposal, ...]
    future: Future

    @property
    def is_decode(self) -> bool:
        return bool(self.proposals)


def window_failed(flights: Sequence[Flight]) -> bool:
    """Whether the window launched last has ended with an error already."""
    return bool(flights) and flights[-1].future.done() and flights[-1].future.exception() is not None


class Run:
    """One run of requests: the waiting, the slots, the windows in flight."""

    def __init__(self, engine, requests: Sequence[Request]) -> None:
        self.engine, self.requests = engine, requests
        self.counters = engine.counters
        self.counters.clear()
        engine.tiers.begin_run()
        resolved = engine.resolved
        self.groups = [range(g, resolved.n_slots, resolved.n_groups) for g in range(resolved.n_groups)]
        self.latest_group: range | None = None
        self.slots: list[Conversation | None] = [None] * resolved.n_slots
        self.waiting = deque(enumerate(requests))
        self.flights: deque[Flight] = deque()
        self.answers: dict[int, Answer] = {}
        self.read_seconds = self.decode_seconds = 0.0
        self.drafter = Drafter(resolved.drafts, engine.draft_layer, self.counters)
        self.clock_ns = time.time_ns()

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
        self._end_tiers()
        answers = tuple(self.answers[i] for i in range(len(self.requests)))
        return Batch(answers, dict(self.counters), self.read_seconds, self.decode_seconds, self.engine.resolved.notes)

    def _end_tiers(self) -> None:
        """Count what the expert tiers did, and say it."""
        tiers = self.engine.tiers
        tiers.end_run()
        found = tiers.counters()
        if found:
            self.counters.update(found)
            LOG.info(tier_line(self.counters, self.decode_seconds, [tier.name for tier in tiers.devices]))

    # ---- admission

    def _admit(self) -> Iterator[Step]:
        """Admit what has arrived into free slots; nothing running and nothing arrived lets the next one in."""
        while self.waiting and None in self.slots:
            number, request = self.waiting[0]
            is_idle = not self.flights and all(c is None for c in self.slots)
            if request.arrive_after > self.counters["decode_windows"] and not is_idle:
                return
            self.waiting.popleft()
            yield from self._read(Conversation(number, request, self.slots.index(None), self.clock_ns))

    def _read(self, conversation: Conversation) -> Iterator[Step]:
        self.engine.tiers.settle()
        self.engine.clear(conversation.slot)
        if conversation.request.max_new == 0:
            self.answers[conversation.number] = Answer((), "length")
            return
        self.counters["admissions"] += 1
        self.counters["late_admissions"] += any(c is not None for c in self.slots) and self.counters["decode_windows"] > 0
        self.slots[conversation.slot] = conversation
        conversation.in_flight = True
        chunks = conversation.chunks(self.engine.resolved.chunk_rows, self.engine.resolved.short_read, WINDOW_ROWS)
        self._count_read(chunks, len(conversation.request.prompt))
        for segment in chunks:
            window = Window.of([segment], keep=True, for_drafts=self.drafter.wants_cells(self._is_alone), is_prompt=True, share=shared_share([conversation]))
            self._launch(window, (conversation,), ())
            yield Step(conversation.number, segment.start + len(segment.tokens), ())
            yield from self._take_read_chunks()
            if window_failed(self.flights) or conversation.is_done:
                return

    def _take_read_chunks(self) -> Iterator[Step]:
        """Take chunks that were computed at once and have no logits, so that a long prompt's rows are not all held for drafts."""
        while not self.engine.resolved.pipelined and self.flights and not self.flights[0].is_decode and not len(self.flights[0].window.logit_rows):
            yield from self._take(self.flights.popleft())

    def _count_read(self, chunks: Sequence[Segment], n_prompt: int) -> None:
        n_short = sum(n_prompt - segment.start <= self.engine.resolved.short_read for segment in chunks)
        n_chunks = len(chunks) - n_short
        self.counters["chunked_prompts"] += n_chunks + (n_short > 0) > 1
        self.counters["prompt_chunks"] += n_chunks
        self.counters["short_reads"] += n_short > 0
        self.counters["short_read_windows"] += n_short

    # ---- windows

    @property
    def _is_alone(self) -> bool:
        """Whether one slot is busy: its request drafts as far as windows go."""
        return sum(c is not None for c in self.slots) == 1

    def _decode(self, group: range) -> None:
        """Launch a group's next window, unless one is in flight."""
        members = [self.slots[slot] for slot in group]
        active = [c for c in members if c is not None]
        if not active or any(c.in_flight for c in active):
            return
        started = time.perf_counter()
        self.counters["windows_with_holes"] += len(active) < len(members)
        active = self._take_turns(active)
        is_alone = self._is_alone
        proposals = self.drafter.propose(active, WINDOW_ROWS // len(active), is_alone)
        segments = [c.next_segment(p.tokens) for c, p in zip(active, proposals, strict=True)]
        has_drafts = any(len(segment.tokens) > 1 for segment in segments)
        self._count_window(group, len(active), has_drafts)
        for conversation in active:
            conversation.in_flight = True
        window = Window.of(segments, keep=not has_drafts, for_drafts=self.drafter.wants_cells(is_alone), share=shared_share(active))
        self._spend(started, is_decode=True)
        self._launch(window, tuple(active), tuple(proposals))

    def _take_turns(self, active: list[Conversation]) -> list[Conversation]:
        """Return those whose turn it is: all, or four where each carries a proposal; the longest waiting go first."""
        if not self.engine.resolved.drafts.batch_mtp or len(active) <= SLOTS_PER_WINDOW:
            return active
        self.counters["rotated_windows"] += 1
        return sorted(sorted(active, key=lambda c: (c.latest_window, c.slot))[:SLOTS_PER_WINDOW], key=lambda c: c.slot)

    def _count_window(self, group: range, n_active: int, has_drafts: bool) -> None:
        self.counters["windows_with_company"] += n_active > 1
        self.counters["verify_windows"] += has_drafts
        self.counters["decode_windows"] += 1
        self.counters["slot_windows"] += n_active
        self.counters["group_turns"] += self.latest_group not in (None, group)
        self.latest_group = group

    def _launch(self, window: Window, conversations: tuple[Conversation, ...], proposals: tuple[Proposal, ...]) -> None:
        started = time.perf_counter()
        self.flights.append(Flight(window, conversations, proposals, self.engine.submit(window)))
        self._spend(started, bool(proposals))

    def _take(self, flight: Flight) -> Iterator[Step]:
        started = time.perf_counter()
        n_emitted = [len(c.emitted) for c in flight.conversations]
        try:
            logits = flight.future.result()
        except StrataError as error:
            self._take_failure(flight, error)
            return
        if flight.is_decode:
            self._take_window(flight, logits)
        else:
            self._take_chunk(flight, logits)
        self._spend(started, flight.is_decode)
        for conversation, n in zip(flight.conversations, n_emitted, strict=True):
            if len(conversation.emitted) > n:
                yield Step(conversation.number, conversation.position, tuple(conversation.emitted[n:]))

    def _take_failure(self, flight: Flight, error: StrataError) -> None:
        """End the requests of a window in which a job of the pool failed; any other error ends the run.

        Chunks of a request that were on their way when an earlier one failed do not fit their slot any more, and end with it.
        """
        if not isinstance(error, PoolJobError) and not all(c.is_done for c in flight.conversations):
            raise error
        self.counters["failed_windows"] += 1
        self.engine.abandon(flight.window)
        for conversation in flight.conversations:
            if not conversation.is_done:
                conversation.fail(error)
            if not any(conversation in later.conversations for later in self.flights):
                self._settle(conversation)

    def _take_chunk(self, flight: Flight, logits: np.ndarray) -> None:
        """Take a prompt chunk; only the last one has logits, [1, vocabulary]."""
        conversation = flight.conversations[0]
        if len(logits):
            try:
                conversation.take_prompt(logits[0])
            except Exception as error:
                conversation.fail(error)
        self.drafter.build(flight.window, flight.conversations, flight.window.count)
        if len(logits):
            self._settle(conversation)

    def _take_window(self, flight: Flight, logits: np.ndarray) -> None:
        kept = np.zeros(len(flight.conversations), np.int32)
        for i, (conversation, proposal) in enumerate(zip(flight.conversations, flight.proposals, strict=True)):
            first, count = int(flight.window.first[i]), int(flight.window.count[i])
            conversation.latest_window = self.counters["decode_windows"]
            try:
                kept[i], accepted = conversation.take_window(logits[first : first + count], proposal.tokens)
            except Exception as error:
                conversation.fail(error)
                continue
            self.counters["drafts_offered"] += count - 1
            self.counters["drafts_accepted"] += accepted
            self.counters["rows_rejected"] += count - int(kept[i])
            self.drafter.learn(conversation, proposal, int(kept[i]), accepted)
        if not flight.window.keep:
            self.counters["rolled_back_windows"] += bool((kept < flight.window.count).any())
            self.engine.commit(flight.window, kept)
        self.engine.tiers.window_decoded()
        self.drafter.build(flight.window, flight.conversations, kept)
        for conversation in flight.conversations:
            self._settle(conversation)

    def _settle(self, conversation: Conversation) -> None:
        conversation.in_flight = False
        self.counters["tokens"] += 0
        if conversation.is_done:
            self.counters["early_ends"] += any(c is not None and c is not conversation for c in self.slots)
            self.counters["stops"] += conversation.finish == "stop"
            self.counters["tokens"] += len(conversation.emitted)
            self.answers[conversation.number] = conversation.answer()
            self.slots[conversation.slot] = None
            self.drafter.leave(conversation)

    def _spend(self, started: float, is_decode: bool) -> None:
        seconds = time.perf_counter() - started
        if is_decode:
            self.decode_seconds += seconds
        else:
            self.read_seconds += seconds
