"""The tools that faults are planted with change nothing by themselves: what they do without a fault survives every check.

Each neutral plant goes through the same wrapping, probing or recomputing as its fault, with nothing wrong in it.
"""

import numpy as np
import pytest

from harness.faults.catalogue.accept import PARTS, wrong_commit
from harness.faults.catalogue.order import sorter
from harness.faults.catalogue.rows import _library_order
from harness.faults.catalogue.scales import SITES, _recoding
from harness.faults.catalogue.stages import _crossing, replay
from harness.faults.checks.table import all_checks
from harness.faults.fault import ALL, Fault
from harness.faults.finding import CLEAN
from harness.faults.hooks import add_probe, on_conversation, on_end, on_logits, on_requests, wrap
from harness.faults.ulp import UlpFault, Where
from tests.unit.faults.bench import bench


def each_executor(plant):
    """A plant for the executors of an engine."""

    def planted(engine):
        for stage in engine.stages:
            plant(stage.executor)

    return planted


def right_commits(executor):
    for part in PARTS.values():
        wrong_commit(executor, part, lambda window, kept: kept)


def own_scales(executor):
    for site, layer in SITES.items():
        wrap(executor, "_see_codes", lambda see, site=site, layer=layer: _recoding(see, site, layer, lambda largest: largest))


def as_they_are(ids):
    return np.tile(np.arange(ids.shape[1]), (ids.shape[0], 1))


NEUTRAL = {
    "commits by the right counts": (each_executor(right_commits), ("window/width-4", "golden")),
    "scales of each row's own": (each_executor(own_scales), ("batch/slots-2", "golden")),
    "experts in router order": (lambda engine: add_probe(engine, sorter(4, as_they_are)), ("batch/slots-2", "golden")),
    "arrays of no earlier window": (
        each_executor(lambda e: replay(e, ("tokens", "slots"), lambda window: False)),
        ("window/width-4", "golden"),
    ),
    "copies that cross": (lambda engine: _crossing(engine, lambda rows, before: rows), ("pipeline/pipelined-2x4",)),
    "logits unchanged": (lambda engine: on_logits(engine, lambda window, logits: logits), ("batch/slots-2", "golden")),
    "requests unchanged": (lambda engine: on_requests(engine, lambda requests: requests), ("window/width-4", "golden")),
    "conversations met": (
        lambda engine: (on_conversation(engine, lambda *_: None), on_end(engine, lambda *_: None)),
        ("batch/slots-2", "golden"),
    ),
    "a flip that meets no row": (lambda engine: add_probe(engine, UlpFault(Where("logits", layer=3))), ("batch/slots-2", "golden")),
    "library orders from no row on": (_library_order("hc_attn_down", 1 << 30), ("batch/slots-2", "golden")),
}


@pytest.mark.parametrize("name", NEUTRAL)
def test_a_plant_without_a_fault_survives(name):
    plant, names = NEUTRAL[name]
    fault = Fault(name, "neutral", "nowhere", "nothing is wrong", names, plant, reach=ALL)
    for check in names:
        assert all_checks(bench())[check].run(bench(), fault) == CLEAN
