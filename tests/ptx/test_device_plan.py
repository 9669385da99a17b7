"""`strata plan` of a card is what opening an engine takes, shared pages too, on a driver that is not there; nothing is computed."""

import gc

import pytest

from harness.options import Options
from harness.scope import Scope
from harness.suites import loans
from strata.batch.engine import Engine
from strata.batch.settings import EngineSettings, resolve
from strata.cuda.card.compiling import why_no_compiler
from strata.cuda.card.small_arrays import PAGE_BYTES, SHARED_PAGES
from strata.errors import DeviceMemoryError
from strata.split.budget import check_budgets, device_bytes
from tests.ptx.driver import no_driver
from tests.unit.harness.scopes import shipped

REASON = why_no_compiler()
pytestmark = [pytest.mark.ptx, pytest.mark.skipif(REASON is not None, reason=str(REASON))]
TIER = {"expert_cache": 384, "vram_reserve_mib": 0}


@pytest.fixture
def driver(monkeypatch):
    with no_driver(monkeypatch, 1 << 30) as found:
        yield found


def settings(**changes) -> EngineSettings:
    return EngineSettings(**{"devices": "cuda:0", "context": 256, "batch": 2, "threads": 1, **changes})


def planned(**changes):
    model = shipped()[0]
    return device_bytes(model, resolve(settings(**changes), model.config, 1))


@pytest.mark.parametrize("changes", [{}, {"mtp": True}, {"batch": 4, "kv": "int8"}, {"layer_split": (6,), "split_device": (0,)}], ids=str)
def test_a_plan_is_what_opening_takes_and_what_the_driver_counts(changes, driver):
    found, = planned(**changes)
    gc.collect()
    driver.clear()
    assert not driver.held
    with Engine(shipped()[0], settings(**changes)) as engine:
        device = engine.stages[0].executor.device
        assert dict(found.purposes) == device.taken and 0 < device.taken[SHARED_PAGES] < PAGE_BYTES
        assert device.memory().taken_bytes == device.memory().reported_bytes == found.total


def test_a_plan_of_a_tier_is_at_most_what_opening_takes(driver):
    found, = planned(**TIER)
    gc.collect()
    with Engine(shipped()[0], settings(**TIER)) as engine:
        memory = engine.stages[0].executor.device.memory()
        assert memory.taken_bytes == memory.reported_bytes
        assert 0 <= memory.taken_bytes - found.total <= 2 * PAGE_BYTES


def test_a_budget_of_what_was_planned_suffices_and_a_byte_less_is_refused(driver):
    total = planned()[0].total
    with Engine(shipped()[0], settings(devices=f"cuda:0:{total}")) as engine:
        assert engine.resolved.n_slots == 2 and engine.stages[0].executor.device.taken_bytes == total
    with pytest.raises(DeviceMemoryError):
        check_budgets(planned(devices=f"cuda:0:{total - 1}"))
    with Engine(shipped()[0], settings(devices=f"cuda:0:{total - 1}")) as engine:
        assert engine.resolved.n_slots == 1


@pytest.mark.parametrize("name", ["shorter-than-chunk", "few-slots", "late-4", "mtp", "own"])
def test_the_budgets_of_the_suite_of_loans_hold_a_tier_with_its_tables(name, driver):
    case = next(case for case in loans.cases(Scope(Options(devices="cuda:0", context=128), shipped()[0].config, shipped()[1].prompts)) if case.name == name)
    with Engine(shipped()[0], case.right.settings) as engine:
        device, (loan,) = engine.stages[0].executor.device, engine.tiers.lending.loans
        assert loan.borrows == (name != "own") and device.taken_bytes <= device.budget_bytes


def test_engines_opened_and_closed_leave_no_page_behind(driver):
    for _ in range(3):
        with Engine(shipped()[0], settings(mtp=True)) as engine:
            held = dict(driver.held)
        del engine
        gc.collect()
        driver.clear()
        assert held and not driver.held
