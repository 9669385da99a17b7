"""A layer's meeting in one compiled call: what is waited for, what is computed, what comes back."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from strata.cpu_pool.instruction_sets import PLAIN, instruction_set
from strata.cuda.card.compiling import why_no_compiler

REASON = why_no_compiler()
pytestmark = [
    pytest.mark.ptx, pytest.mark.skipif(REASON is not None, reason=str(REASON)),
    pytest.mark.skipif(instruction_set() == PLAIN, reason="without byte products jobs are called"),
]
N_LAYERS, PLACE, STEP, N_ROWS, SOON = 3, 1, 7, 2, 10**10


class Box:
    """A mailbox's host side with one layer's message of four entries in it, and the jobs over the experts of one layer."""

    def __init__(self, team) -> None:
        from strata.cpu_pool.arena import MappedArena
        from strata.cuda.tier import mailbox as m
        from strata.cuda.tier.serving import server
        from strata.host.pool_jobs import PoolJobs
        from strata.split.tier_opening import banks_of
        from tests.unit.host.test_pool_jobs import real_layers

        self.width, layers, random = 1280, real_layers(1280, 96, 7), np.random.default_rng(3)
        self.jobs = PoolJobs(layers, MappedArena(banks_of(layers)), team, Counter())
        self.lists = [np.array(words, np.int32) for words in ([5, 0, 3], [0, 1, 2, 4], [1, 0, 0, 1])]
        self.values = random.standard_normal(N_ROWS * self.width).astype(np.float32)
        self.headers, self.done, self.stop = np.zeros(N_LAYERS * m.FIELDS, np.int32), np.zeros(N_LAYERS, np.int32), np.zeros(1, np.int32)
        at = PLACE * m.FIELDS
        self.headers[[at + m.N_ROWS, at + m.N_JOBS, at + m.JOB_ENTRIES]] = N_ROWS, 3, 4
        self.outputs, self.served, self.spent = np.full(16 * self.width, np.nan, np.float32), np.full(16, -1, np.int32), np.zeros(2, np.int64)
        self._server, self._flag = server, at + m.FLAG

    def say(self, step: int = STEP, with_jobs: bool = True) -> None:
        """Publish the message."""
        self.headers[self._flag] = 2 * step + with_jobs

    def serve(self, wait_ns: int = SOON) -> int:
        """Serve the layer once."""
        jobs = self.jobs.compiled(0, N_ROWS, 16)
        areas = *(np.resize(words, 16) for words in self.lists), self.values, self.outputs
        return self._server(jobs.run)(
            PLACE, STEP, wait_ns, self.headers, self.stop, self.done, *areas, self.width, jobs.control, jobs.addresses, jobs.lines, jobs.spans,
            jobs.pages, jobs.room, self.served, self.spent,
        )

    def called(self) -> np.ndarray:
        """The outputs of jobs that are called."""
        out = np.empty((4, self.width), np.float32)
        self.jobs.compute(0, *self.lists, self.values.reshape(N_ROWS, -1), out, False)
        return out.reshape(-1)


@pytest.fixture(scope="module")
def team():
    from strata.cpu_pool.team import Team

    with Team(2) as team:
        yield team


def test_a_message_is_answered_with_the_bits_of_jobs_that_are_called(team):
    box = Box(team)
    box.say()
    assert box.serve() == 3
    assert box.outputs[: 4 * box.width].tobytes() == box.called().tobytes() and np.isnan(box.outputs[4 * box.width :]).all()
    assert box.done.tolist() == [0, STEP, 0] and box.served[:4].tolist() == [5, 0, 3, -1]
    assert box.spent.min() > 0


def test_a_message_without_jobs_is_not_answered(team):
    box = Box(team)
    box.say(with_jobs=False)
    assert box.serve() == 0 and not box.done.any() and np.isnan(box.outputs).all()


def test_a_message_of_another_step_is_none(team):
    from strata.cuda.tier.serving import SILENT

    box = Box(team)
    box.say(STEP - 1)
    assert box.serve(wait_ns=10**6) == SILENT and not box.done.any()
    assert box.spent[0] >= 10**6 and box.spent[1] == 0


def test_a_message_is_waited_for(team):
    box = Box(team)
    box.say(STEP - 1)
    box.serve(wait_ns=1)
    with ThreadPoolExecutor(1) as threads:
        serving = threads.submit(box.serve)
        time.sleep(0.02)
        assert not serving.done()
        box.say()
        assert serving.result(10) == 3
    assert box.outputs[: 4 * box.width].tobytes() == box.called().tobytes()


def test_nothing_is_computed_for_a_kernel_that_waits_no_more(team):
    from strata.cuda.tier.mailbox import GAVE_UP
    from strata.cuda.tier.serving import STOPPED

    box = Box(team)
    box.say()
    box.stop[0] = GAVE_UP
    assert box.serve() == STOPPED and not box.done.any() and np.isnan(box.outputs).all()


def test_an_idle_benchmark_answers_without_work(team):
    from strata.bench.gpu.tiered import CountedJobs

    box = Box(team)
    box.jobs = CountedJobs(box.jobs)
    box.jobs.is_idle = True
    box.say()
    assert box.serve() == 3 and np.isnan(box.outputs).all() and box.done[PLACE] == STEP
    box.jobs.served(0, box.served[:3])
    assert (box.jobs.n_calls, box.jobs.n_experts) == (1, 3)
