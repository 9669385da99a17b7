"""The harness catches what it is there for: each suite, a fault of one unit in the last place in its right arm."""

import pytest

from harness.judging import judge_case
from harness.running import Runner
from harness.suites.table import SUITES
from harness.verdicts import DIFFERS, EXACT
from tests.unit.harness.plants import LastPlace, is_decoding
from tests.unit.harness.scopes import scope, shipped, short_prompts

CASES = {
    "batch": ("slots-2", dict(batch=2), LastPlace("gdn.output", 5, is_decoding)),
    "split": ("2-stages-6", dict(layer_split=(6,), batch=2), LastPlace("hand_off", 6, is_decoding)),
    "pipeline": ("pipelined-2x2", dict(layer_split=(6,), batch=2), LastPlace("moe.output", 9, is_decoding)),
    "window": ("width-3", dict(), LastPlace("qsa.output", 7, lambda window: not window.keep)),
    "chunks": ("size-7", dict(prefill=7), LastPlace("moe.output", 0, lambda window: window.n_rows == 7)),
    "drafts": ("mtp-4", dict(), LastPlace("gdn.conv", 8, lambda window: not window.keep)),
    "sampled": ("mtp", dict(), LastPlace("logits", -1, lambda window: not window.keep)),
    "batch-mtp": ("slots-2", dict(batch=2), LastPlace("qsa.attended", 11, lambda window: not window.keep)),
}


def judged(suite_name: str, plant=None):
    """Judge one case with a few short conversations, the plant in the right arm alone."""
    name, options, _ = CASES[suite_name]
    suite = SUITES[suite_name]
    case = next(case for case in suite.cases(scope(short_prompts(3, 9), max_new=8, **options)) if case.name == name)
    runner = Runner(shipped()[0], lambda arm: plant if arm == case.right else None)
    return judge_case(suite, case, runner)


@pytest.mark.parametrize("suite_name", CASES)
def test_a_case_is_exact_without_a_fault_and_differs_with_one(suite_name):
    plant = CASES[suite_name][2]
    assert judged(suite_name).verdict == EXACT
    result = judged(suite_name, plant)
    assert plant.hits > 0
    assert result.verdict == DIFFERS
    assert result.comparison.differences[0].row is not None


class Throwing(LastPlace):
    """Breaks the arm instead of a value."""

    def see(self, *_):
        raise IndexError("planted")


def test_an_arm_that_breaks_gives_an_error_and_its_text():
    result = judged("batch", Throwing("gdn.output", 5))
    assert (result.verdict, result.reason, result.comparison) == ("error", "IndexError: planted", None)
