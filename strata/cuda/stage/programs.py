"""Recorded windows of a stage by key: their launches, kept until a buffer moved, a workspace went or a lane was dropped.

A key begins with the lane's number and the window's rows; its program's graph is kept under the same key (graphs.py).
Does not know: what is recorded, how it is run.
"""

from collections.abc import Callable
from dataclasses import dataclass

from strata.cuda.card.graphs import GraphTable
from strata.cuda.card.launch import Launch
from strata.cuda.memory.workspace import Workspace
from strata.cuda.stage.taps import Tap


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """The launches of a window shape, where its results lie, what is seen on the way, and the workspace of all that."""

    launches: tuple[Launch, ...]
    residual: object
    logits: object
    generation: int
    taps: tuple[Tap, ...] = ()
    work: Workspace | None = None

    @property
    def is_stale(self) -> bool:
        """Whether a buffer moved since it was recorded."""
        return self.generation != self.work.generation


class ProgramTable:
    """Programs by key; a program that is dropped is dropped with its graph."""

    def __init__(self, graphs: GraphTable) -> None:
        self.graphs, self.by_key = graphs, {}

    def find(self, key: tuple, work: Workspace) -> Program | None:
        """Return the program of a key, if there is one that can be run and lies in `work`."""
        program = self.by_key.get(key)
        return program if program is not None and program.work is work and not program.is_stale else None

    def keep(self, key: tuple, program: Program, works: tuple) -> None:
        """Keep a program; drop others whose buffers moved or lie in none of `works`."""
        self._forget(lambda other, held: held.is_stale or held.work not in works)
        self.by_key[key] = program

    def forget_lane(self, number: int) -> None:
        """Drop the programs of a lane."""
        self._forget(lambda key, _: key[0] == number)

    def _forget(self, is_gone: Callable[[tuple, Program], bool]) -> None:
        for key in [key for key, program in self.by_key.items() if is_gone(key, program)]:
            del self.by_key[key]
            self.graphs.forget(key)

    def clear(self) -> None:
        """Drop every program and every graph."""
        self.graphs.clear()
        self.by_key.clear()
