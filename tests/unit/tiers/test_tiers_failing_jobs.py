"""A job of the CPU pool that fails: its requests end with the error, the pool and the other requests go on, exactly."""

import pytest

from harness.pool_stress import FAILING_LENGTH, fail_a_job
from strata.batch.requests import Request
from strata.errors import DeviceError
from tests.unit.harness.scopes import shipped
from tests.unit.tiers.opened import digests, open_engine

FEW = {"expert_cache": 24, "pcie_frac": 0.0, "adapt_every": 0}


def mixed(failing: int = 1) -> list[Request]:
    """Four requests; the one of FAILING_LENGTH tokens fails."""
    lengths = [20, 30, 9, 25]
    lengths[failing] = FAILING_LENGTH
    return [Request(item.prompt[:n], 6) for item, n in zip(shipped()[1].prompts, lengths, strict=False)]


@pytest.fixture(scope="module")
def expected():
    with open_engine() as engine:
        return digests(engine.generate(mixed()))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"batch": 4},
        {"batch": 2, "prefill": 5},
        {"batch": 2, "prefill": 5, "short_read": 8},
        {"devices": "host,host", "layer_split": (6,), "batch": 4, "batch_groups": 2, "prefill": 5},
        {"devices": "host:17m,host:17m", "layer_split": (6,), "batch": 2, "prefill": 10, "expert_cache": 0},
        {"mtp": True, "spec_policy": "full"},
    ],
)
def test_one_request_ends_with_the_error_and_the_others_are_exact(expected, settings):
    with open_engine(**{**FEW, **settings}) as engine:
        for stage in engine.stages:
            stage.executor = fail_a_job(stage.executor)
        for _ in range(2):  # the engine is whole behind a failure
            batch = engine.generate(mixed())
            assert [bool(answer.error) for answer in batch.answers] == [False, True, False, False]
            assert "a job of the CPU pool, layer" in batch.answers[1].error and batch.answers[1].tokens == ()
            found = digests(batch)
            assert [found[i] for i in (0, 2, 3)] == [expected[i] for i in (0, 2, 3)]
            assert batch.counters["failed_windows"] > 0


def test_a_failure_outside_the_pool_ends_the_run():
    with open_engine(**FEW) as engine:
        executor = engine.stages[0].executor

        def broken(*_):
            raise DeviceError("the device", "it is planted", "nothing")

        executor.head = broken
        with pytest.raises(DeviceError, match="planted"):
            engine.generate(mixed())
