"""Slots: stale arrays replayed for a window of the same shape, sessions that begin over old state, ends that disturb others.

Does not know: checks.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from harness.faults.catalogue.accept import PARTS, Part
from harness.faults.catalogue.stages import replay
from harness.faults.fault import Fault
from harness.faults.hooks import on_conversation, on_end, on_logits, wrap
from harness.faults.when import has_company
from strata.batch.conversation import Conversation
from strata.batch.engine import Engine
from strata.batch.run import Run
from strata.rows import Window

STALE, REUSE, ENDS = "stale address", "slot reuse", "early end"
COMPANY = ("batch/slots-2", "batch/slots-4", "batch/late-4")
GROUPS = ("pipeline/serial-2x4", "pipeline/pipelined-2x4")
REUSED = ("batch/slots-2", "batch/slots-3", "batch/late-4")
ENDING = ("batch/holes-8", "batch/early-ends-8", "batch/slots-2")


def faults() -> list[Fault]:
    """Return the faults."""
    return [*_stale(), *_reuse(), *_ends()]


# ---- stale address


def _stale() -> list[Fault]:
    tables = [
        _replayed("tokens", ("tokens",), COMPANY),
        _replayed("positions", ("positions",), COMPANY),
        _replayed("slots", ("slots", "segment_slot"), GROUPS),
    ]
    return [*tables, _old_session(), _old_table()]


def _replayed(what: str, fields: tuple[str, ...], seen_by: tuple[str, ...]) -> Fault:
    def plant(engine: Engine) -> None:
        for stage in engine.stages:
            replay(stage.executor, fields, has_company)

    words = f"a window of the same shape replays the {what} of the window before, in company"
    return Fault(f"stale-{what}", STALE, "arrays of a window", words, seen_by, plant)


def _old_session() -> Fault:
    """The recurrent memory moves to another array when a session begins; the operations go on with the old one's values."""

    def plant(engine: Engine) -> None:
        for stage in engine.stages:
            _moving_memory(stage.executor)

    return Fault(
        "stale-memory",
        STALE,
        "recurrent memory",
        "a session's memory is moved when the next one is admitted; what was in it stays behind",
        COMPANY,
        plant,
    )


def _moving_memory(executor) -> None:
    def make(clear: Callable) -> Callable:
        def cleared(slot: int) -> None:
            clear(slot)
            for state in executor.state.values():
                if hasattr(state, "memory"):
                    object.__setattr__(state, "memory", np.zeros_like(state.memory))

        return cleared

    wrap(executor, "clear", make)


def _old_table() -> Fault:
    def plant(engine: Engine) -> None:
        for stage in engine.stages:
            wrap(stage.executor, "clear", lambda clear, executor=stage.executor: _dropping_table(clear, executor))

    return Fault("stale-table", STALE, "rotary table", "the rotary table's buffer is given to the second session admitted", COMPANY, plant)


def _dropping_table(clear: Callable, executor):
    sessions = []

    def cleared(slot: int) -> None:
        clear(slot)
        sessions.append(slot)
        if len(sessions) == 2:
            executor.table = np.zeros_like(executor.table)

    return cleared


# ---- slot reuse


def _reuse() -> list[Fault]:
    found = [_not_cleared(name, part) for name, part in PARTS.items()]
    return [*found, _clears_neighbour(), _clears_late(), _clears_half()]


def _not_cleared(name: str, part: Part) -> Fault:
    def plant(engine: Engine) -> None:
        for stage in engine.stages:
            wrap(stage.executor, "clear", lambda clear, executor=stage.executor: _keeping(clear, executor, part))

    return Fault(
        f"reuse-{name}", REUSE, part.words, f"a new session begins with the {part.words} of the one before in its slot", REUSED, plant
    )


def _keeping(clear: Callable, executor, part: Part):
    def cleared(slot: int) -> None:
        mine = [
            getattr(state, part.field) for state in (*executor.state.values(), *executor.ngrams.values()) if isinstance(state, part.owner)
        ]
        before = [array[slot].copy() for array in mine]
        clear(slot)
        for array, value in zip(mine, before, strict=True):
            array[slot] = value

    return cleared


def _clears_neighbour() -> Fault:
    def plant(engine: Engine) -> None:
        for stage in engine.stages:
            wrap(
                stage.executor,
                "clear",
                lambda clear, executor=stage.executor: lambda slot: (clear(slot), clear((slot + 1) % executor.n_slots)),
            )

    return Fault(
        "reuse-clears-neighbour",
        REUSE,
        "sessions' state",
        "the beginning of a session clears the slot beside it too",
        ("batch/late-4", "batch/slots-2"),
        plant,
    )


def _clears_late() -> Fault:
    """A session is cleared when its prompt has been read already."""

    def plant(engine: Engine) -> None:
        for stage in engine.stages:
            _clearing_late(stage.executor)

    return Fault(
        "reuse-clears-late",
        REUSE,
        "sessions' state",
        "a session's slot is cleared after its first window, where it was used before",
        REUSED,
        plant,
    )


def _clearing_late(executor) -> None:
    waiting: list[int] = []
    used: set[int] = set()

    def make_begin(begin: Callable) -> Callable:
        def began(window: Window) -> None:
            if waiting and window.segments[0].slot != waiting[0]:
                executor.clear(waiting.pop(0))
            begin(window)

        return began

    def make_clear(clear: Callable) -> Callable:
        def cleared(slot: int) -> None:
            clear(slot)
            if slot in used and slot not in waiting:
                waiting.append(slot)
            used.add(slot)

        return cleared

    wrap(executor, "clear", make_clear)
    wrap(executor, "begin", make_begin)


def _clears_half() -> Fault:
    def plant(engine: Engine) -> None:
        if len(engine.stages[0].cells) < 2:
            return
        for stage in engine.stages:
            wrap(stage.executor, "clear", lambda clear, executor=stage.executor: _by_halves(clear, executor))

    return Fault("reuse-clears-half", REUSE, "recurrent memory", "in an engine with slots, only half of a memory is cleared", REUSED, plant)


def _by_halves(clear: Callable, executor):
    def cleared(slot: int) -> None:
        mine = [state.memory for state in executor.state.values() if hasattr(state, "memory")]
        before = [array[slot, 0].copy() for array in mine]
        clear(slot)
        for array, value in zip(mine, before, strict=True):
            array[slot, 0] = value

    return cleared


# ---- early end


def _ends() -> list[Fault]:
    return [_rolled_logits(), *_at_end(), _wrong_stride(), *_stops()]


def _stops() -> list[Fault]:
    def ignored(run: Run, conversation: Conversation) -> None:
        if any(c is not None and c is not conversation for c in run.slots):
            conversation.request = replace(conversation.request, stop_tokens=frozenset())

    def passed(run: Run, conversation: Conversation) -> None:
        wrap(conversation, "take_window", lambda take: _past_stops(take, conversation))

    return [
        Fault(
            "end-stop-ignored",
            ENDS,
            "stop tokens",
            "who joins others does not end at a stop token",
            ("batch/stops-4",),
            lambda engine: on_conversation(engine, ignored),
        ),
        Fault(
            "end-stop-passed",
            ENDS,
            "stop tokens",
            "drafts behind an accepted stop token are emitted too",
            ("window/stops-8",),
            lambda engine: on_conversation(engine, passed),
        ),
    ]


def _past_stops(take: Callable, conversation):
    """Stop tokens are looked at when the window's drafts have been taken."""

    def taken(logits: np.ndarray, drafts: tuple[int, ...]):
        request = conversation.request
        if not drafts:
            return take(logits, drafts)
        conversation.request = replace(request, stop_tokens=frozenset())
        kept = take(logits, drafts)
        conversation.request = request
        if not conversation.finish and any(e.pick in request.stop_tokens for e in conversation.emitted):
            conversation.finish = "stop"
        return kept

    return taken


def _has_hole(window: Window) -> bool:
    return has_company(window) and list(window.segment_slot) != list(range(len(window.segment_slot)))


def _rolled_logits() -> Fault:
    def change(window: Window, logits: np.ndarray) -> np.ndarray:
        return np.roll(logits, 1, axis=0) if _has_hole(window) else logits

    return Fault(
        "end-rolled-logits",
        ENDS,
        "logits",
        "beside an empty slot, logits go to the row beside",
        ENDING,
        lambda engine: on_logits(engine, change),
    )


def _wrong_stride() -> Fault:
    """Rows of a window with holes look up the slots that they would have without."""

    def plant(engine: Engine) -> None:
        for stage in engine.stages:
            wrap(stage.executor, "begin", lambda begin, executor=stage.executor: _counting_slots(begin, executor))

    return Fault(
        "end-wrong-stride",
        ENDS,
        "slots of a window",
        "beside an empty slot, attention takes the cells of the slot with the row's number",
        ENDING,
        plant,
    )


def _counting_slots(begin: Callable, executor):
    def began(window: Window) -> None:
        begin(window)
        if _has_hole(window):
            executor.window = replace(window, slots=window.segment_of_row.copy())
            if window in executor._pending:
                executor._pending[executor.window] = executor._pending[window]

    return began


def _at_end() -> list[Fault]:
    """What happens to the sessions' state when a conversation has left its slot."""

    def compacted(engine: Engine, slot: int, n_slots: int) -> None:
        for stage in engine.stages:
            stage.executor.copy_slot(slot, (slot + 1) % n_slots)

    def cleared(engine: Engine, slot: int, n_slots: int) -> None:
        for stage in engine.stages:
            stage.executor.clear((slot + 1) % n_slots)

    def rolled(engine: Engine, slot: int, n_slots: int) -> None:
        for state in engine.stages[-1].executor.state.values():
            if hasattr(state, "tail"):
                state.tail[:] = np.roll(state.tail, 1, axis=0)

    found = []
    for name, words, spoil in (
        ("end-compaction", "an ended session's state is moved over the one beside it", compacted),
        ("end-clears", "the slot beside an ended session is cleared", cleared),
        ("end-rolled-tails", "the tails of all slots move on by one when a session ends", rolled),
    ):
        found.append(Fault(name, ENDS, "sessions' state", words, ENDING, lambda engine, spoil=spoil: _when_ended(engine, spoil)))
    return found


def _when_ended(engine: Engine, spoil: Callable[[Engine, int, int], None]) -> None:
    n_slots = len(engine.stages[0].cells)
    if n_slots > 1:
        on_end(engine, lambda run, conversation: spoil(engine, conversation.slot, n_slots))
