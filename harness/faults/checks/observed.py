"""Checks of observation: the same arm with a ledger and without; and of the draft layer: what it proposes in two arms.

observed   answers with a level-2 ledger on every stage against answers without one
proposals  for each (conversation, position), the tokens and probabilities that the draft layer gave: prompts whole against in
           chunks, alone against one proposal per slot; answers cannot show it, since proposals are verified

Does not know: faults.
"""

from collections.abc import Sequence

import numpy as np

from harness.arms import Arm
from harness.comparison import compare
from harness.faults.checks.contract import Check
from harness.faults.scopes import TINY
from harness.faults.fault import CONTROL, ONE, Fault
from harness.faults.finding import CLEAN, COMPARISON, ERROR, ORACLE, VACUOUS, Finding
from harness.faults.hooks import on_run
from harness.faults.planting import Bench
from harness.ledger.ledger import Ledger
from harness.scope import MODEL
from harness.workload import Workload
from strata.batch.engine import Engine
from strata.batch.requests import Request

LEVEL = 2
N_OBSERVED, N_DRAFTED = 3, 4
CHUNK = 7
Seen = dict[tuple[tuple[int, ...], int], tuple]
"""(prompt, position) -> (tokens, probabilities) of a proposal."""


def observed_checks(bench: Bench) -> dict[str, Check]:
    """Return the checks by name."""
    scope = bench.scopes[TINY]
    drafting = {"mtp": True, "spec": 2, "spec_policy": "full"}
    whole = Arm("alone", scope.settings(**drafting), alone=True)
    chunked = Arm("chunks", scope.settings(**drafting, prefill=CHUNK))
    slots = Arm("slots", scope.settings(**drafting, batch=3, batch_mtp=True))
    work = scope.workload(N_DRAFTED)
    checks = (
        Check("observed/slots-2", True, _observed(Arm("slots-2", scope.settings(batch=2)), scope.workload(N_OBSERVED))),
        Check(
            "observed/split",
            True,
            _observed(Arm("split", scope.settings(batch=2, devices="host,host", layer_split=(6,))), scope.workload(2)),
        ),
        Check("proposals/chunks", True, _proposals(whole, chunked, work)),
        Check("proposals/slots", True, _proposals(whole, slots, work)),
        Check("proposals/reference", False, _reference(whole)),
    )
    return {check.name: check for check in checks}


def _observed(arm: Arm, work: Workload):
    def run(bench: Bench, fault: Fault) -> Finding:
        try:
            plain = bench.runner(fault).run(arm, work)
            seen = bench.runner(fault, probe_of=lambda arm: Ledger(LEVEL)).run(arm, work)
        except Exception as error:  # whatever a fault does is evidence
            return Finding(ERROR, f"{type(error).__name__}: {error}")
        found = compare(plain.answers, seen.answers, [item.label for item in work.items]).differences
        return Finding(COMPARISON, f"{len(found)} of {len(work.items)} requests differ when observed") if found else CLEAN

    return run


def _proposals(left: Arm, right: Arm, work: Workload):
    def run(bench: Bench, fault: Fault) -> Finding:
        try:
            a = _seen(bench, CONTROL if fault.reach == ONE else fault, left, work)
            b = _seen(bench, fault, right, work)
        except Exception as error:  # whatever a fault does is evidence
            return Finding(ERROR, f"{type(error).__name__}: {error}")
        common = sorted(a.keys() & b.keys())
        if not common or len(common) < max(len(a), len(b)) // 2:
            return Finding(VACUOUS, f"the draft layer made {len(a)} and {len(b)} proposals, {len(common)} of them at the same places")
        differing = [key for key in common if a[key] != b[key]]
        return Finding(COMPARISON, f"{len(differing)} of {len(common)} proposals differ") if differing else CLEAN

    return run


def _seen(bench: Bench, fault: Fault, arm: Arm, work: Workload) -> Seen:
    """Run an arm; return what its draft layer proposed."""
    runner, seen = bench.runner(fault), {}
    requests = runner.requests(arm, work)
    for group in [[request] for request in requests] if arm.alone else [requests]:
        with runner.open(arm) as engine:
            record_proposals(engine, seen)
            engine.generate(group)
    return seen


def record_proposals(engine: Engine, seen: Seen) -> None:
    """Let the runs of an engine write down the draft layer's proposals."""

    def of_run(run) -> None:
        propose = run.drafter.propose

        def proposed(conversations: Sequence, most_rows: int, is_alone: bool) -> list:
            proposals = propose(conversations, most_rows, is_alone)
            for conversation, proposal in zip(conversations, proposals, strict=True):
                if proposal.probabilities:
                    seen[conversation.request.prompt, conversation.position] = proposal.tokens, proposal.probabilities
            return proposals

        run.drafter.propose = proposed

    on_run(engine, of_run)


def _reference(arm: Arm):
    """The first draft of each position against the float64 reference's, which coded activations may miss now and then."""
    n_fed, most_missed = 12, 2

    def run(bench: Bench, fault: Fault) -> Finding:
        with np.load(MODEL / "reference-mix.npz") as stored:
            prompt, greedy, drafts = (stored[f"p0_{name}"].tolist() for name in ("ids", "greedy", "drafts"))
        seen: Seen = {}
        try:
            with bench.runner(fault).open(arm) as engine:
                record_proposals(engine, seen)
                engine.generate([Request(tuple(prompt), n_fed, forced=tuple(greedy[:n_fed]))])
        except Exception as error:  # whatever a fault does is evidence
            return Finding(ERROR, f"{type(error).__name__}: {error}")
        at = [(position - len(prompt), tokens) for (_, position), (tokens, _) in seen.items() if tokens]
        missed = sum(tokens[0] != drafts[k][0] for k, tokens in at)
        if len(at) < n_fed // 3:
            return Finding(VACUOUS, f"the draft layer made {len(at)} proposals")
        return Finding(ORACLE, f"{missed} of {len(at)} drafts are not the reference's") if missed > most_missed else CLEAN

    return run
