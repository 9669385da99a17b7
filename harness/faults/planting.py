"""Runners whose engines carry a fault, and the bench that mutants are tried on.

A fault that reaches one arm goes into the engines of the right arm only; any other goes into every engine.  Reference
outcomes of engines without a fault are made once and shared.  Does not know: what is compared.
"""

from functools import cached_property

from harness.arms import Arm
from harness.faults.fault import CONTROL, ONE, Fault
from harness.faults.finding import Finding
from harness.faults.scopes import scopes_of
from harness.running import Outcome, ProbeOf, Runner
from harness.scope import Scope
from harness.workload import Workload
from strata.batch.engine import Engine
from strata.model.model import Model


class PlantingRunner(Runner):
    """A runner with a fault; `clean` runs the left arms where the fault reaches one arm only."""

    def __init__(self, model: Model, fault: Fault, clean: Runner | None, probe_of: ProbeOf | None = None) -> None:
        super().__init__(model)
        self.fault, self._clean, self._probes = fault, clean, probe_of or (lambda arm: None)

    def reference(self, arm: Arm, workload: Workload) -> Outcome:
        """Run the left arm, or take it from the runner without a fault."""
        if self._clean is not None and self.fault.reach == ONE:
            return self._clean.reference(arm, workload)
        return super().reference(arm, workload)

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
    """The model and what is shared by trials: outcomes of engines without a fault, what the control said of each check.

    `without_fault` is what checks must let pass before they are trusted.
    """

    def __init__(self, model: Model, without_fault: Fault = CONTROL) -> None:
        self.model, self.without_fault = model, without_fault
        self.clean = PlantingRunner(model, CONTROL, None)
        self.control: dict[str, Finding] = {}

    def runner(self, fault: Fault, probe_of: ProbeOf | None = None) -> PlantingRunner:
        """Return a fresh runner with a fault."""
        return PlantingRunner(self.model, fault, self.clean, probe_of)

    @cached_property
    def scopes(self) -> dict[str, Scope]:
        """The workloads of the checks, by name."""
        return scopes_of(self.model)
