"""Running an arm on a workload.

An arm's requests run together in one engine, or each alone in an engine that nobody used before.  Outcomes of reference
arms are kept, for requests that run alone request by request, so that suites share them.  `probe_of(arm)` may give a probe
that sees (or disturbs) the arm's operations; kept outcomes hold for this runner only.  Does not know: comparisons, suites.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.arms import Arm
from harness.stress import put_stress
from harness.workload import Item, Workload
from strata.batch.engine import Engine
from strata.batch.requests import Answer, Batch, Request
from strata.batch.settings import Resolved, resolve
from strata.batch.validation import check_request
from strata.errors import UsageError
from strata.model.model import Model
from strata.split.devices import require_devices, usable_cores
from strata.split.probes import Probe

ProbeOf = Callable[[Arm], Probe | None]


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What an arm gave: answers in the workload's order, counters, the settings in force, notes, and seconds."""

    arm: Arm
    answers: tuple[Answer, ...]
    counters: Mapping[str, int]
    effective: Mapping[str, str]
    notes: tuple[str, ...]
    read_seconds: float
    decode_seconds: float

    @property
    def errors(self) -> tuple[str, ...]:
        return tuple(answer.error for answer in self.answers if answer.error)


class Runner:
    """Runs arms on one model."""

    def __init__(self, model: Model, probe_of: ProbeOf | None = None) -> None:
        self.model = model
        self._probe_of = probe_of or (lambda arm: None)
        self._kept: dict[tuple, Outcome] = {}

    def check(self, arm: Arm, workload: Workload) -> None:
        """Raise UsageError or RequestError, before anything runs, for settings or items that cannot be honoured."""
        resolved = self._resolve(arm)
        require_devices(resolved.devices)
        for item in workload.items:
            check_request(Request(item.prompt, item.max_new), self.model.config, resolved.context)

    def reference(self, arm: Arm, workload: Workload) -> Outcome:
        """Run an arm that needs no reference itself, or return what an earlier run of it gave."""
        if not arm.alone:
            return self._keep((arm.identity, workload), lambda: self.run(arm, workload))
        parts = [self._keep((arm.identity, item), lambda item=item: self._run_alone(arm, item)) for item in workload.items]
        return _joined(arm, parts)

    def run_or_kept(self, arm: Arm, workload: Workload, reference: Sequence[Answer] = ()) -> Outcome:
        """Return what the arm gave as a reference arm of this workload, or run it."""
        kept = self._kept.get((arm.identity, workload)) if arm.drafts is None else None
        return kept or self.run(arm, workload, reference)

    def run(self, arm: Arm, workload: Workload, reference: Sequence[Answer] = ()) -> Outcome:
        """Run an arm; `reference` holds the answers that its scripted drafts are made from."""
        requests = self.requests(arm, workload, reference)
        if arm.alone:
            return _joined(arm, [self._run_together(arm, [request]) for request in requests])
        order = arm.schedule.order or range(len(requests))
        outcome = self._run_together(arm, [requests[i] for i in order])
        answers = dict(zip(order, outcome.answers, strict=True))
        return _with_answers(outcome, tuple(answers[i] for i in range(len(requests))))

    def requests(self, arm: Arm, workload: Workload, reference: Sequence[Answer] = ()) -> list[Request]:
        """Return an arm's requests in the workload's order."""
        if arm.drafts and len(reference) != len(workload.items):
            raise UsageError(f"arm {arm.name}", "its drafts need a reference answer for every item", "run a reference arm first")
        order = arm.schedule.order or range(len(workload.items))
        if sorted(order) != list(range(len(workload.items))):
            raise UsageError(f"order={list(order)}", f"it does not name each of {len(workload.items)} items once", "give a permutation")
        arrivals = dict(zip(order, arm.schedule.arrivals, strict=False))
        return [self._request(arm, i, item, reference, arrivals.get(i, 0)) for i, item in enumerate(workload.items)]

    def _request(self, arm: Arm, index: int, item: Item, reference: Sequence[Answer], arrive_after: int) -> Request:
        plain = Request(item.prompt, item.max_new, item.stop_tokens, arrive_after, item.forced, sampling=item.sampling)
        if arm.drafts is None:
            return plain
        source = arm.drafts.source(index, reference[index].tokens, self.model.config.vocabulary)
        return replace(plain, drafts=source, window_rows=arm.drafts.width)

    def _run_alone(self, arm: Arm, item: Item) -> Outcome:
        return self.run(arm, Workload((item,)))

    def _run_together(self, arm: Arm, requests: Sequence[Request]) -> Outcome:
        with self.open(arm) as engine:
            put_stress(arm.stresses, engine.stages)
            batch = engine.generate(requests)
            return _outcome(arm, engine.resolved, batch)

    def open(self, arm: Arm) -> Engine:
        """Open an arm's engine, with its probe; the caller closes it."""
        return Engine(self.model, arm.settings, self._probe_of(arm))

    def _resolve(self, arm: Arm) -> Resolved:
        return resolve(arm.settings, self.model.config, usable_cores())

    def _keep(self, key: tuple, run: Callable[[], Outcome]) -> Outcome:
        if key not in self._kept:
            self._kept[key] = run()
        return self._kept[key]


def _outcome(arm: Arm, resolved: Resolved, batch: Batch) -> Outcome:
    effective = {**resolved.described(), **arm.manner()}
    return Outcome(arm, batch.answers, batch.counters, effective, batch.notes, batch.read_seconds, batch.decode_seconds)


def _with_answers(outcome: Outcome, answers: tuple[Answer, ...]) -> Outcome:
    return Outcome(
        outcome.arm, answers, outcome.counters, outcome.effective, outcome.notes, outcome.read_seconds, outcome.decode_seconds
    )


def _joined(arm: Arm, parts: Sequence[Outcome]) -> Outcome:
    """Join the outcomes of requests that ran alone."""
    counters: Counter = Counter()
    for part in parts:
        counters.update(part.counters)
    return Outcome(
        arm,
        tuple(answer for part in parts for answer in part.answers),
        dict(counters),
        parts[0].effective if parts else {},
        parts[0].notes if parts else (),
        sum(part.read_seconds for part in parts),
        sum(part.decode_seconds for part in parts),
    )
