"""Runners whose engines carry a fault, and the bench that mutants are tried on.

A fault that reaches one arm goes into the engines of the right arm only; any other goes into every engine.  Reference
outcomes of engines without a fault are made once and shared.  A *scenario* changes every request the same way in both arms
(sampling keys, errors).  Does not know: what is compared.
"""

from collections.abc import Callable
from functools import cached_property

from harness.arms import Arm
from harness.faults.fault import CONTROL, ONE, Fault
from harness.running import Outcome, ProbeOf, Runner
from harness.workload import Workload
from strata.batch.engine import Engine
from strata.batch.requests import Request
from strata.model.model import Model

Scenario = Callable[[Request], Request]


def plainly(request: Request) -> Request:
    """Leave a request as it is."""
    return request


class PlantingRunner(Runner):
    """A runner with a fault; `clean` runs the left arms where the fault reaches one arm only."""

    def __init__(self, model: Model, fault: Fault, clean: Runner | None, probe_of: ProbeOf | None = None, scenario: Scenario = plainly) -> None:
        super().__init__(model)
        self.fault, self._clean, self._probes, self._scenario = fault, clean, probe_of or (lambda arm: None), scenario

    def reference(self, arm: Arm, workload: Workload) -> Outcome:
        """Run the left arm, or take it from the runner without a fault."""
        if self._clean is not None and self.fault.reach == ONE:
            return self._clean.reference(arm, workload)
        return super().reference(arm, workload)

    def requests(self, arm: Arm, workload: Workload, reference=()) -> list[Request]:
        """Return an arm's requests as the scenario has them."""
        return [self._scenario(request) for request in super().requests(arm, workload, reference)]

    def open(self, arm: Arm) -> Engine:
        """Open an engine and plant the fault in it."""
        engine = Engine(self.model, self.fault.settings(arm.settings), self._probes(arm))
        try:
            self.fault.plant(engine)
        except BaseException:
            engine.close()
            raise
        return engine


class Bench:
    """The model, the reference outcomes of engines without a fault, by scenario; the checks that let the control pass."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.trusted: set[str] = set()
        self._clean: dict[Scenario, Runner] = {}

    def runner(self, fault: Fault, scenario: Scenario = plainly, probe_of: ProbeOf | None = None) -> PlantingRunner:
        """Return a fresh runner with a fault."""
        return PlantingRunner(self.model, fault, self.clean(scenario), probe_of, scenario)

    def clean(self, scenario: Scenario = plainly) -> Runner:
        """Return the runner without a fault."""
        if scenario not in self._clean:
            self._clean[scenario] = PlantingRunner(self.model, CONTROL, None, None, scenario)
        return self._clean[scenario]

    @cached_property
    def scopes(self):
        """The workloads of the checks, by name."""
        from harness.faults.checks.scopes import scopes_of

        return scopes_of(self.model)
