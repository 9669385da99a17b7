"""The pool's jobs for a card: the outputs that the host's products give one by one, from either bank, in company or alone."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from strata.cpu_pool.arena import COPIES, FILE, PARTS, MappedArena, ResidentArena
from strata.cpu_pool.team import Team
from strata.errors import PoolJobError
from strata.experts.dispatch import dispatch
from strata.formats.table import by_name
from strata.host import pool_jobs
from strata.host.experts import activate
from strata.host.matrix import Activations, Entries, Matrix
from strata.host.pool_jobs import PoolJobs
from strata.model.tensor import Tensor
from strata.split.tier_opening import banks_of
from tests.unit.cpu_pool.row_cases import random_weights
from tests.unit.host.engine_steps import new_executor
from tests.unit.tiers.opened import RamArena


@pytest.fixture(scope="module")
def executor():
    found = new_executor("canonical", "f16")
    yield found
    found.device.close()


def new_jobs(executor, team, arena_type=MappedArena) -> PoolJobs:
    layers = {layer.index: layer.moe for layer in executor.placed.layers}
    return PoolJobs(layers, arena_type(banks_of(layers)), team, Counter())


def work_of(executor, n_rows: int, seed: int):
    """(experts, starts, rows, values) of n_rows rows that chose at random."""
    random, c = np.random.default_rng(seed), executor.config
    ids = np.array([random.choice(c.n_experts, c.n_used, replace=False) for _ in range(n_rows)], np.int32)
    nobody, none = np.full(c.n_experts, -1, np.int32), np.zeros(c.n_experts, np.bool_)
    plan = dispatch(ids, nobody, none, 0)
    return plan.experts, plan.starts, plan.rows, random.standard_normal((n_rows, c.hidden)).astype(np.float32)


def one_by_one(executor, layer: int, experts, starts, rows, values) -> np.ndarray:
    """The outputs of the host's own products, over the file."""
    moe, control, n = executor.placed.of(layer).moe, executor.device.team.control, len(rows)
    x = Activations(values, control, np.full(len(values), 32, np.int32))
    own = Entries(experts, starts, rows)
    gates = moe.gate.times(x, True, control, own)
    activate(gates, moe.up.times(x, True, control, own))
    lines = Entries(experts, starts, np.arange(n, dtype=np.int32))
    return moe.down.times(Activations(gates, control, np.full(n, 32, np.int32)), True, control, lines)


@pytest.mark.parametrize("arena_type", [MappedArena, RamArena])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_outputs_are_those_of_the_products_one_by_one(executor, n_threads, arena_type):
    with Team(n_threads) as team:
        jobs = new_jobs(executor, team, arena_type)
        for layer in range(executor.config.n_layers):
            for n_rows in (1, 2, 3, 8, 40):
                work = work_of(executor, n_rows, 100 * layer + n_rows)
                out = np.full((len(work[2]), executor.config.hidden), np.nan, np.float32)
                jobs.compute(layer, *work, out, False)
                assert out.tobytes() == one_by_one(executor, layer, *work).tobytes(), (layer, n_rows)
        banks = {FILE} if arena_type is MappedArena else {FILE, COPIES}
        assert {bank for bank, n in jobs.blobs.items() if n} == banks


def test_the_plain_loops_give_the_same(executor, monkeypatch):
    work = work_of(executor, 3, 7)
    out = np.empty((len(work[2]), executor.config.hidden), np.float32)
    monkeypatch.setattr(pool_jobs, "instruction_set", lambda: pool_jobs.PLAIN)
    with Team(1) as team:
        new_jobs(executor, team).compute(0, *work, out, True)
    assert out.tobytes() == one_by_one(executor, 0, *work).tobytes()


def test_another_row_gives_other_bits(executor):
    experts, starts, rows, values = work_of(executor, 2, 9)
    with Team(1) as team:
        jobs, found = new_jobs(executor, team), []
        for part in (values, values[::-1].copy()):
            found.append(np.empty((len(rows), executor.config.hidden), np.float32))
            jobs.compute(0, experts, starts, rows, part, found[-1], False)
    assert found[0].tobytes() != found[1].tobytes()


def test_a_failing_job_names_its_layer(executor):
    class Broken(MappedArena):
        def source(self, layer, expert):
            raise OSError("the disk is gone")

    work = work_of(executor, 1, 3)
    with Team(1) as team, pytest.raises(PoolJobError, match="layer 1: OSError: the disk is gone"):
        new_jobs(executor, team, Broken).compute(1, *work, np.empty((len(work[2]), executor.config.hidden), np.float32), False)


def real_layers(n_in: int, n_hidden: int, n_experts: int) -> dict[int, SimpleNamespace]:
    """A layer of Q4_K experts with Q4_0 down, wide enough that a group's rows are several pieces."""
    found = {}
    for seed, (part, name, shape) in enumerate((("gate", "Q4_K", (n_hidden, n_in)), ("up", "Q4_K", (n_hidden, n_in)), ("down", "Q4_0", (n_in, n_hidden)))):
        raw = random_weights(by_name(name), shape[1], shape[0], n_experts, seed).raw
        found[part] = Matrix(Tensor(part, name, (n_experts, *shape), raw, Path(part)))
    return {0: SimpleNamespace(**found)}


@pytest.mark.parametrize(("n_in", "n_hidden"), [(2560, 640), (1280, 96)])
def test_groups_of_several_pieces_are_coded_when_all_of_them_are_there(n_in, n_hidden):
    layers = real_layers(n_in, n_hidden, 7)
    random = np.random.default_rng(5)
    with Team(4) as team:
        host = SimpleNamespace(placed=SimpleNamespace(of=lambda layer: SimpleNamespace(moe=layers[layer])), device=SimpleNamespace(team=team))
        jobs = PoolJobs(layers, MappedArena(banks_of(layers)), team, Counter())
        for counts in ([1] * 7, [1, 2, 3, 4, 1, 9, 1], [1]):
            starts = np.cumsum([0, *counts]).astype(np.int32)
            rows = random.integers(0, 9, starts[-1]).astype(np.int32)
            work = random.permutation(7)[: len(counts)].astype(np.int32), starts, rows, random.standard_normal((9, n_in)).astype(np.float32)
            expected = one_by_one(host, 0, *work)
            for _ in range(10):
                out = np.full((len(rows), n_in), np.nan, np.float32)
                jobs.compute(0, *work, out, False)
                assert out.tobytes() == expected.tobytes(), counts


def test_compiled_jobs_are_counted_and_given_for_as_many_rows_as_asked_for(executor):
    c, work = executor.config, work_of(executor, 8, 33)
    out = np.empty((len(work[2]), c.hidden), np.float32)
    with Team(2) as team:
        jobs = new_jobs(executor, team, RamArena)
        found = jobs.compiled(2, 8, 8 * c.n_used)
        if found is None:
            pytest.skip("without byte products jobs are called")
        found.run(found.control, found.addresses, *work[:3], found.lines, work[3], found.spans, out, found.pages, found.room)
        jobs.served(2, work[0])
        assert out.tobytes() == one_by_one(executor, 2, *work).tobytes() and sum(jobs.blobs.values()) == len(work[0])
        jobs.use_calls()
        assert jobs.compiled(2, 8, 8 * c.n_used) is None


def test_a_layer_that_cannot_be_prepared_says_so_before_its_jobs_are_compiled(executor, monkeypatch):
    with Team(1) as team:
        jobs = new_jobs(executor, team)
        monkeypatch.setattr(jobs, "_prepare", lambda layer: 1 // 0)
        with pytest.raises(PoolJobError, match="layer 3"):
            jobs.compiled(3, 1, 4)


def test_experts_that_move_in_the_arena_are_found(executor):
    c, layer = executor.config, 1
    layers = {at.index: at.moe for at in executor.placed.layers}
    arena = ResidentArena(banks_of(layers), [(layer, expert) for expert in range(c.n_experts // 2)])
    work = work_of(executor, 8, 21)
    expected = one_by_one(executor, layer, *work)
    with Team(2) as team:
        jobs = PoolJobs(layers, arena, team, Counter())
        for leaves in work[0].tolist():
            comes = (leaves + c.n_experts // 2) % c.n_experts
            out = np.full((len(work[2]), c.hidden), np.nan, np.float32)
            jobs.compute(layer, *work, out, False)
            assert out.tobytes() == expected.tobytes()
            arena.exchange(layer, leaves, comes, {part: arena.expert(layer, part, comes).copy() for part in PARTS})
            jobs.renew(layer, leaves, comes)
        assert jobs.blobs[FILE] and jobs.blobs[COPIES]
        assert all(jobs._addresses.of(layer)[1][e] == arena.is_resident(layer, e) for e in range(c.n_experts))
