"""How faults get into an engine: methods of its instances are wrapped, its runs and conversations are met as they begin.

`wrap(owner, name, make)` replaces one instance's method by `make(method)`; classes stay as they are, so that other engines
are not touched.  Does not know: faults.
"""

from collections.abc import Callable, Iterable

import numpy as np

from strata.batch.conversation import Conversation
from strata.batch.engine import Engine
from strata.batch.run import Run
from strata.rows import Window
from strata.split.probes import Probe, Probes, attach
from strata.split.stages import Stage


def wrap(owner: object, name: str, make: Callable[[Callable], Callable]) -> None:
    """Replace the method `name` of one instance."""
    setattr(owner, name, make(getattr(owner, name)))


def add_probe(engine: Engine, probe: Probe) -> None:
    """Let a probe see an open engine's stages, before the probes that see them already."""
    observer = engine.stages[0].observer
    attach(probe if observer is None else Probes([probe, observer._probe]), engine.stages)


def later_stages(engine: Engine) -> tuple[Stage, ...]:
    """Return the stages behind the first."""
    return tuple(engine.stages[1:])


def on_run(engine: Engine, change: Callable[[Run], None]) -> None:
    """Call `change` with each run of an engine before it begins."""

    def make(start: Callable) -> Callable:
        def started(requests: Iterable) -> Run:
            run = start(requests)
            change(run)
            return run

        return started

    wrap(engine, "start", make)


def on_requests(engine: Engine, change: Callable) -> None:
    """Replace the requests of each run by `change(requests)`."""
    wrap(engine, "start", lambda start: lambda requests: start(change(list(requests))))


def on_conversation(engine: Engine, change: Callable[[Run, Conversation], None]) -> None:
    """Call `change(run, conversation)` as each conversation enters its slot."""

    def of_run(run: Run) -> None:
        def make(read: Callable) -> Callable:
            def admitted(conversation: Conversation):
                change(run, conversation)
                return read(conversation)

            return admitted

        wrap(run, "_read", make)

    on_run(engine, of_run)


def on_end(engine: Engine, change: Callable[[Run, Conversation], None]) -> None:
    """Call `change(run, conversation)` when a conversation has left its slot."""

    def of_run(run: Run) -> None:
        def make(settle: Callable) -> Callable:
            def settled(conversation: Conversation) -> None:
                settle(conversation)
                if conversation.is_done:
                    change(run, conversation)

            return settled

        wrap(run, "_settle", make)

    on_run(engine, of_run)


def on_logits(engine: Engine, change: Callable[[Window, np.ndarray], np.ndarray]) -> None:
    """Replace the logits of the last stage by `change(window, logits)`."""
    last = engine.stages[-1]

    def make(run: Callable) -> Callable:
        return lambda window, residual: change(window, run(window, residual))

    wrap(last, "run", make)
