"""Ragged accept: after a verify window, some state keeps other rows than were accepted, in slots that accept differently.

`wrong_commit` lets an executor commit twice: once with other counts, of which one part of the state is taken, and once
rightly.  Does not know: checks.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from harness.faults.fault import Fault
from harness.faults.hooks import on_conversation, wrap
from strata.batch.engine import Engine
from strata.host.executor import HostExecutor
from strata.host.state import GdnState, NgramState, QsaState
from strata.rows import Window

KIND = "ragged accept"
SEEN_BY = ("window/wrong-8", "window/width-4", "window/ragged-2-slots", "ledger window/width-4")
COMPANY = ("window/ragged-2-slots", "window/ragged-4-slots", "window/batch-widths")
CountsOf = Callable[[Window, np.ndarray], np.ndarray]


@dataclass(frozen=True, slots=True)
class Part:
    """One array of the sessions' state: its name in words, the kind of state it belongs to, its field."""

    words: str
    owner: type
    field: str


MEMORY = Part("recurrent memory", GdnState, "memory")
TAIL = Part("convolution tail", GdnState, "tail")
NGRAM_TAIL = Part("n-gram tail", NgramState, "tail")
HISTORY = Part("token history", NgramState, "tokens")
PARTS = {"memory": MEMORY, "tail": TAIL, "ngram-tail": NGRAM_TAIL, "history": HISTORY}


def none_kept(window: Window, kept: np.ndarray) -> np.ndarray:
    return np.zeros_like(kept)


def all_kept(window: Window, kept: np.ndarray) -> np.ndarray:
    return window.count.astype(kept.dtype)


def one_fewer(window: Window, kept: np.ndarray) -> np.ndarray:
    return np.maximum(kept - 1, 0)


def the_largest(window: Window, kept: np.ndarray) -> np.ndarray:
    return np.minimum(kept.max(), window.count).astype(kept.dtype)


def of_the_neighbour(window: Window, kept: np.ndarray) -> np.ndarray:
    return np.minimum(np.roll(kept, 1), window.count).astype(kept.dtype)


COUNTS = {
    "stale": (none_kept, "stays as it was before the window", SEEN_BY),
    "rejected": (all_kept, "keeps the rejected rows too", SEEN_BY),
    "short": (one_fewer, "keeps one row too few", SEEN_BY),
    "largest": (the_largest, "advances in all slots by the largest count", COMPANY),
    "neighbour": (of_the_neighbour, "advances by the count of the slot beside", COMPANY),
}


def faults() -> list[Fault]:
    """Return the faults."""
    found = [_wrong_part(name, how) for name in PARTS for how in ("stale", "rejected", "largest")]
    found += [_wrong_part("memory", "short"), _wrong_part("tail", "neighbour"), _wrong_part("history", "short")]
    return [*found, _pooled(), _unchecked(), _one_more(), _reads_rejected(), _late_cells()]


def _wrong_part(name: str, how: str) -> Fault:
    counts, words, seen_by = COUNTS[how]
    part = PARTS[name]

    def plant(engine: Engine) -> None:
        for stage in engine.stages:
            wrong_commit(stage.executor, part, counts)

    return Fault(f"accept-{how}-{name}", KIND, f"commit of the {part.words}", f"the {part.words} {words}", seen_by, plant)


def wrong_commit(executor: HostExecutor, part: Part, counts: CountsOf) -> None:
    """Let an executor's commits move one part of the state by other counts."""

    def make(commit: Callable) -> Callable:
        def committed(window: Window, kept: np.ndarray) -> None:
            arrays = [array for state in (*executor.state.values(), *executor.ngrams.values()) for array in _moving(state)]
            mine = [
                getattr(state, part.field)
                for state in (*executor.state.values(), *executor.ngrams.values())
                if isinstance(state, part.owner)
            ]
            before, pending = [array.copy() for array in arrays], executor._pending[window]
            commit(window, counts(window, kept))
            wrong = [array.copy() for array in mine]
            _put(arrays, before)
            executor._pending[window] = pending
            commit(window, kept)
            _put(mine, wrong)

        return committed

    wrap(executor, "commit", make)


def _moving(state) -> list[np.ndarray]:
    return [] if isinstance(state, QsaState) else [getattr(state, name) for name in ("memory", "tail", "tokens") if hasattr(state, name)]


def _put(arrays: list[np.ndarray], values: list[np.ndarray]) -> None:
    for array, value in zip(arrays, values, strict=True):
        array[:] = value


def _pooled() -> Fault:
    """A rejected row completes a block; what it pooled is never pooled again."""

    def plant(engine: Engine) -> None:
        executor = engine.stages[0].executor
        block, done = executor.config.indexer_block, {}

        def make(begin: Callable) -> Callable:
            def began(window: Window) -> None:
                _restore_pooled(executor, done)
                begin(window)
                for slot, position in zip(window.slots, window.positions, strict=True):
                    if not window.keep and position % block == block - 1:
                        done.setdefault((int(slot), int(position) // block), {})

            return began

        wrap(executor, "begin", make)

    words = "a block's pooled key stays what a rejected row made it"
    return Fault("accept-pooled", KIND, "indexer: pooled keys", words, ("deep window/width-4", "ledger deep window/width-4"), plant)


def _restore_pooled(executor: HostExecutor, done: dict[tuple[int, int], dict[int, np.ndarray]]) -> None:
    """Put back what each block's first pooling gave, by layer."""
    for layer, state in executor.state.items():
        for (slot, index), kept in done.items() if isinstance(state, QsaState) else ():
            state.pooled[slot, index] = kept.setdefault(layer, state.pooled[slot, index].copy())


def _unchecked() -> Fault:
    """Every draft is taken for the pick."""

    def change(run, conversation) -> None:
        def make(take: Callable) -> Callable:
            def taken(logits: np.ndarray, drafts: tuple[int, ...]):
                if drafts:
                    logits = logits.copy()
                    for row, draft in enumerate(drafts):
                        logits[row, draft] = np.float32(1e6)
                return take(logits, drafts)

            return taken

        wrap(conversation, "take_window", make)

    return Fault(
        "accept-unchecked",
        KIND,
        "acceptance",
        "drafts are accepted without being compared with the picks",
        SEEN_BY,
        lambda engine: on_conversation(engine, change),
    )


def _one_more() -> Fault:
    """The first rejected draft is kept in place of the pick."""

    def change(run, conversation) -> None:
        def make(take: Callable) -> Callable:
            def taken(logits: np.ndarray, drafts: tuple[int, ...]):
                kept, accepted = take(logits, drafts)
                if accepted < len(drafts) and kept == accepted + 1 and not conversation.is_done:
                    conversation.text[conversation.position] = drafts[accepted]
                return kept, accepted

            return taken

        wrap(conversation, "take_window", make)

    return Fault(
        "accept-rejected-fed",
        KIND,
        "acceptance",
        "the rejected draft is fed next instead of the pick",
        SEEN_BY,
        lambda engine: on_conversation(engine, change),
    )


def _reads_rejected() -> Fault:
    """Rejected cells are taken for held ones: positions go on behind them in the rotation, one further."""

    def plant(engine: Engine) -> None:
        rejected: dict[int, int] = {}

        def make_commit(commit: Callable) -> Callable:
            def committed(window: Window, kept: np.ndarray) -> None:
                commit(window, kept)
                rejected.update({s.slot: int(n < len(s.tokens)) for s, n in zip(window.segments, kept, strict=True)})

            return committed

        def make_begin(begin: Callable, executor) -> Callable:
            def began(window: Window) -> None:
                begin(window)
                shift = np.array([rejected.get(int(s), 0) for s in window.slots], np.int32)
                if shift.any() and not window.keep:
                    executor.table = np.concatenate((executor.table[1:], executor.table[-1:]))
                    rejected.clear()

            return began

        executor = engine.stages[0].executor
        wrap(executor, "commit", make_commit)
        wrap(executor, "begin", lambda begin: make_begin(begin, executor))

    return Fault(
        "accept-rotation", KIND, "rotary positions", "after a rejected draft, rows are rotated one position too far", SEEN_BY, plant
    )


def _late_cells() -> Fault:
    """The cells of rejected rows are written once more after the next window wrote its own."""

    def plant(engine: Engine) -> None:
        for stage in engine.stages:
            _rewrite_cells(stage.executor)

    return Fault("accept-late-cells", KIND, "K/V cells", "a rejected row's cell is written late, over the accepted one", SEEN_BY, plant)


def _rewrite_cells(executor: HostExecutor) -> None:
    late: list[tuple[np.ndarray, int, int, np.ndarray]] = []

    def make(commit: Callable) -> Callable:
        def committed(window: Window, kept: np.ndarray) -> None:
            for array, slot, cell, value in late:
                array[slot, cell] = value
            late.clear()
            commit(window, kept)
            for segment, n in zip(window.segments, kept, strict=True):
                for state in executor.state.values() if n < len(segment.tokens) else ():
                    if isinstance(state, QsaState):
                        cell = segment.start + int(n)
                        late.extend(
                            (array, segment.slot, cell, array[segment.slot, cell].copy()) for array in (state.k_codes, state.v_codes)
                        )

        return committed

    wrap(executor, "commit", make)
