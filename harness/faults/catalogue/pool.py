"""Jobs of the CPU pool that fail: the failure is not noticed, ends others too, or ends the run.

Only requests whose jobs fail are about this (`harness.pool_stress`).  Does not know: checks.
"""

from collections.abc import Callable

from harness.faults.catalogue.requests import ERRORS
from harness.faults.fault import Fault
from harness.faults.hooks import on_run, wrap
from strata.batch.engine import Engine
from strata.batch.run import Run
from strata.errors import PlantedFault, PoolJobError

SITE = "jobs of the pool"
FAILING = ("pool/failing-job", "pool/failing-job-slots-4")


def faults() -> list[Fault]:
    """Return the faults."""
    return [
        Fault("pool-failure-ends-run", ERRORS, SITE, "a job's failure ends the run", FAILING, lambda engine: on_run(engine, _ending_the_run)),
        Fault("pool-failure-ends-others", ERRORS, SITE, "a job's failure ends every request that has a slot", FAILING[1:], lambda engine: on_run(engine, _ending_all)),
        Fault("pool-failure-unseen", ERRORS, SITE, "a job's failure is not noticed: its rows are what lay there", FAILING, _unseen),
    ]


def _ending_the_run(run: Run) -> None:
    def failing(flight, error) -> None:
        raise PlantedFault("a job of the pool", str(error), "it was planted")

    wrap(run, "_take_failure", lambda take: failing)


def _ending_all(run: Run) -> None:
    def make(take: Callable) -> Callable:
        def failing(flight, error) -> None:
            take(flight, error)
            for conversation in run.slots:
                if conversation is not None:
                    conversation.fail(error)

        return failing

    wrap(run, "_take_failure", make)


def _unseen(engine: Engine) -> None:
    def make(compute: Callable) -> Callable:
        def computed(layer, part, matrix, x, entries, out) -> None:
            try:
                compute(layer, part, matrix, x, entries, out)
            except PoolJobError:
                out[:] = 0

        return computed

    for stage in engine.stages:
        if hasattr(stage.executor, "_compute"):
            wrap(stage.executor, "_compute", make)
