"""Fuzzing: plans come back from text, pairs are covered, a planted fault is found and shrunk, and nothing is found without one."""

import itertools

import pytest

from harness.cli.main import main
from harness.faults.ulp import UlpFault, Where
from harness.fuzz.covering import all_pairs, covering_rows, pairs_of
from harness.fuzz.hunting import hunt, plans, run_plan, shrink
from harness.fuzz.plan import DIMENSIONS, Ask, case_of, complexity, parse_plan, plainest
from harness.options import Options
from harness.running import Runner
from harness.scope import open_scope
from harness.verdicts import DIFFERS
from strata.errors import UsageError


@pytest.fixture(scope="module")
def opened():
    return open_scope(Options())


def test_a_plan_comes_back_from_its_text(opened):
    for plan in itertools.islice(plans(opened[1].prompts, 3), 30):
        assert parse_plan(plan.text()) == plan


@pytest.mark.parametrize("text", ["", "{}", '{"asks":[]}', '{"asks":[[0,0,1]]}', '{"slots":99,"asks":[[0,1,1]]}', '{"slot":2,"asks":[[0,1,1]]}'])
def test_what_is_no_plan_is_refused(text):
    with pytest.raises(UsageError):
        parse_plan(text)


def test_the_same_seed_gives_the_same_plans_and_another_seed_others(opened):
    first, again, other = (list(itertools.islice(plans(opened[1].prompts, seed), 8)) for seed in (1, 1, 2))
    assert first == again != other


def test_all_pairs_of_values_are_covered_in_far_fewer_rows_than_there_are_combinations():
    missing, names = all_pairs(DIMENSIONS), list(DIMENSIONS)
    for n_rows, row in enumerate(covering_rows(DIMENSIONS, 1), 1):
        missing -= pairs_of(row, names)
        if not missing:
            break
    largest = sorted(len(values) for values in DIMENSIONS.values())[-2:]
    assert largest[0] * largest[1] <= n_rows <= 3 * largest[0] * largest[1]


def test_every_plan_makes_a_case_whose_settings_resolve(opened):
    model, scope = opened
    runner = Runner(model)
    for plan in itertools.islice(plans(scope.prompts, 5), 120):
        case = case_of(plan, scope.prompts, model.config.n_layers)
        runner.check(case.right, case.workload)


def test_plans_are_exact_without_a_fault(opened):
    model, scope = opened
    hunted = list(hunt(Runner(model), scope.prompts, 7, 0, 6))
    assert len(hunted) == 6 and all(h.result.verdict != DIFFERS for h in hunted)
    assert sum(h.result.comparison.n_rows for h in hunted) > 20


def test_a_fault_that_needs_company_is_found_and_shrunk_to_two_requests(opened):
    model, scope = opened

    def faulty(arm):
        return None if arm.name == "solo" else UlpFault(Where("moe.output", 2, min_segments=2))

    runner = Runner(model, faulty)
    asks = (Ask(0, 7, 5), Ask(9, 16, 9), Ask(20, 3, 5))
    text = '{"slots":4,"prefill":5,"threads":1,"arrivals":"staggered","order":"backward"}'
    found = parse_plan(text[:-1] + ',"asks":[' + ",".join(f"[{a.prompt},{a.length},{a.max_new}]" for a in asks) + "]}")
    assert run_plan(found, runner, scope.prompts).verdict == DIFFERS
    smallest = shrink(found, runner, scope.prompts, 1)
    assert run_plan(smallest, runner, scope.prompts).verdict == DIFFERS
    assert complexity(smallest) < complexity(found)
    assert len(smallest.asks) == 2 and smallest.slots == 4 and smallest.prefill == 0 and smallest.threads == 0
    assert run_plan(smallest, Runner(model), scope.prompts).verdict != DIFFERS


def test_the_command_runs_a_count_of_plans_and_one_plan_by_its_text(capsys):
    assert main(["fuzz", "--count", "2", "--seed", "11"]) == 0
    assert "2 plans" in capsys.readouterr().out
    assert main(["fuzz", "--plan", plainest((Ask(0, 3, 2),)).text().replace("{", '{"slots":2,', 1)]) == 0
    assert main(["fuzz", "--count", "0"]) == 2
    assert main(["fuzz", "--plan", "nonsense"]) == 2
    assert "Traceback" not in capsys.readouterr().err
