"""Stress on the CPU pool's jobs: other instructions, which must not change a bit, and a job that fails.

    pool-SET      the pool's products use the instruction set SET (`strata.cpu_pool.instruction_sets`); a device's own stay as they are
    failing-job   a job of the pool fails in the window that reads a prompt's last token at position `FAILING_LENGTH` - 1

On a host device the parts that the tier plans for the pool are changed, on a card the tier's `jobs`.  An engine without an
expert tier has no pool and is refused.  Does not know: suites.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from harness.stressed import Stressed
from strata.cpu_pool.instruction_sets import PLAIN, compiled_features, sets_for
from strata.cpu_pool.row_kernels import vector_product
from strata.errors import PlantedFault, PoolJobError, UsageError
from strata.formats.contract import GROUP
from strata.host.matrix import Activations, Entries, Matrix
from strata.host.products import coded_product
from strata.rows import Window

FAILING_LENGTH = 13


def failure() -> PlantedFault:
    """Return the failure of a job."""
    return PlantedFault("a job of the pool", "the harness planted its failure", "nothing is wrong")


class ChosenProducts:
    """A bank whose coded products use a chosen instruction set; everything else is the bank's own."""

    def __init__(self, matrix: Matrix, instructions: str) -> None:
        self._matrix, self._instructions = matrix, instructions

    def __getattr__(self, name: str):
        return getattr(self._matrix, name)

    def times(self, x: Activations, coded: bool, control: np.ndarray, entries: Entries, out: np.ndarray) -> np.ndarray:
        """Compute as `Matrix.times`."""
        bank = self._matrix
        if not coded:
            return bank.times(x, coded, control, entries, out)
        is_plain = self._instructions == PLAIN
        product = coded_product(bank.type_id) if is_plain else vector_product(bank.type_id, bank.n_in // GROUP, self._instructions)
        product(control, *bank.place, entries.experts, entries.starts, entries.rows, *(x.coded if is_plain else x.for_products), out)
        return out


class FailingBank:
    """A bank whose products fail."""

    def times(self, *_: object) -> np.ndarray:
        """Fail."""
        raise failure()


def pool_sets() -> tuple[str, ...]:
    """Return the instruction sets that this machine's pool can use, the best first."""
    return sets_for(compiled_features())


def use_instructions(executor, instructions: str):
    """Let the pool of an executor's device use an instruction set; return the executor."""
    tier = _tier_of(executor)
    if executor.replays:
        _use_for_jobs(tier.jobs, instructions)
        return executor

    def chosen(part):
        banks = (bank if isinstance(bank, ChosenProducts) else ChosenProducts(bank, instructions) for bank in (part.gate, part.up, part.down))
        return replace(part, **dict(zip(("gate", "up", "down"), banks, strict=True)))

    return _on_jobs(executor, tier, chosen)


def fail_a_job(executor):
    """Let a job of the pool fail in windows that read the end of a prompt of `FAILING_LENGTH` tokens; return the executor."""
    tier = _tier_of(executor)
    if executor.replays:
        return _failing_on_card(executor, tier.jobs)

    def failing(part):
        return replace(part, gate=FailingBank()) if _ends_the_prompt(executor.window) else part

    return _on_jobs(executor, tier, failing)


def _ends_the_prompt(window: Window) -> bool:
    """Whether a window reads the end of a prompt of `FAILING_LENGTH` tokens."""
    return window.is_prompt and any(segment.start + len(segment.tokens) == FAILING_LENGTH and segment.n_logits for segment in window.segments)


def _use_for_jobs(jobs, instructions: str) -> None:
    """Let a card's jobs compute matrix by matrix with an instruction set."""
    jobs.use_products(lambda matrix: ChosenProducts(matrix, instructions))


def _failing_on_card(executor, jobs):
    """Let a card's jobs fail while its executor runs such a window; return the executor that knows its window."""
    watched = WatchedWindows(executor)
    jobs.use_calls()
    compute = jobs.compute

    def failing(layer: int, *arguments) -> None:
        if watched.is_failing():
            raise PoolJobError(layer, failure())
        compute(layer, *arguments)

    jobs.compute = failing
    return watched


class WatchedWindows(Stressed):
    """A card's executor whose present window is known."""

    def __init__(self, inner) -> None:
        super().__init__(inner)
        object.__setattr__(self, "_windows", [])

    def is_failing(self) -> bool:
        """Whether the present window is one whose jobs fail."""
        return any(map(_ends_the_prompt, self._windows))

    def run_window(self, window: Window, residual, blocks) -> np.ndarray:
        """Run the window, which is known meanwhile."""
        self._windows.append(window)
        try:
            return self._inner.run_window(window, residual, blocks)
        finally:
            self._windows.remove(window)


def _tier_of(executor):
    if getattr(executor, "tier", None) is None:
        raise UsageError("stress on the pool", "every expert is resident, so there are no jobs", "give the arm an expert cache")
    return executor.tier


class ChangedJobs:
    """A tier whose jobs of the pool are changed as they are planned."""

    def __init__(self, tier, change: Callable) -> None:
        self._tier, self._change = tier, change

    def __getattr__(self, name: str):
        return getattr(self._tier, name)

    def plan(self, layer: int, ids: np.ndarray, is_prompt: bool):
        """Plan, and change the jobs."""
        entries, entry_of, parts = self._tier.plan(layer, ids, is_prompt)
        return entries, entry_of, tuple(self._change(part) if part.in_pool else part for part in parts)


def _on_jobs(executor, tier, change: Callable):
    executor.tier = ChangedJobs(tier, change)
    return executor
