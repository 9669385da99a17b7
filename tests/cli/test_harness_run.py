"""`strata-harness run` ends with the exit code of what it found, says what it compared, and repeats what it says."""

import re
import shlex

import pytest

from harness import judging
from tests.cli.harness_calls import harness, prompts_file

SMALL = ("--max-new", 4)
"""Few enough tokens for a test; every suite's feature still happens."""


@pytest.fixture
def prompts(tmp_path):
    return prompts_file(tmp_path)


def test_equal_arms_end_with_exit_code_0_and_the_counts(prompts):
    outcome = harness("run", "--suite", "batch", "--case", "slots-2", "--prompts", prompts, *SMALL)
    assert (outcome.code, outcome.err) == (0, "")
    assert re.search(r"batch +exact +1 +12 +12 .* windows_with_company [1-9]", outcome.out)
    assert "exact: every token and every logit row compared is equal; 1 case, 12 tokens, 12 logit rows" in outcome.out


@pytest.mark.parametrize(
    ("suite", "options"),
    [
        ("split", ("--layer-split", 6, "--batch", 2)),
        ("pipeline", ("--layer-split", 6, "--batch", 2, "--case", "pipelined-2x2")),
        ("window", ("--case", "width-3")),
        ("chunks", ("--prefill", 4, "--case", "size-4")),
    ],
)
def test_each_suite_is_exact_on_small_prompts(prompts, suite, options):
    assert harness("run", "--suite", suite, "--prompts", prompts, "--max-new", 8, *options).code == 0


def test_the_grouped_mode_differs_in_a_token_with_its_margin_and_exit_code_1():
    outcome = harness("run", "--suite", "batch", "--rounding", "grouped", "--case", "slots-2")
    assert outcome.code == 1
    found = re.search(r"first token that differs +answer token \d+, picked at position \d+: token (\d+) \| (\d+), margin (\d\.\d+).*\| (\d\.\d+)", outcome.out)
    assert found
    assert found[1] != found[2]
    assert min(float(found[3]), float(found[4])) > 0
    assert "differs: something is not equal" in outcome.out


def test_a_failure_prints_the_command_that_repeats_it():
    outcome = harness("run", "--suite", "batch", "--rounding", "grouped", "--case", "slots-2", "--max-new", 6)
    (command,) = re.findall(r"repeat: strata-harness (.*?) +│", outcome.out)
    assert harness(*shlex.split(command)).code == 1


@pytest.mark.parametrize(
    ("options", "counter"),
    [
        (("--suite", "batch", "--batch", 1), "windows_with_company=0"),
        (("--suite", "pipeline", "--batch", 2, "--batch-groups", 1, "--case", "pipelined-2x2"), "overlaps=0"),
        (("--suite", "window", "--case", "width-2", "--max-new", 2), "rolled_back_windows=0"),
        (("--suite", "chunks", "--prefill", 64), "chunked_prompts=0"),
    ],
)
def test_a_feature_that_cannot_happen_ends_vacuous_with_exit_code_2(prompts, options, counter):
    outcome = harness("run", "--prompts", prompts, *SMALL, *options)
    assert outcome.code == 2
    assert counter in outcome.out
    assert "vacuous: what was to be tested did not happen" in outcome.out


def test_a_device_that_is_too_small_is_an_error_with_exit_code_2(prompts):
    outcome = harness("run", "--suite", "batch", "--case", "slots-2", "--devices", "host:1m", "--prompts", prompts, *SMALL)
    assert outcome.code == 2
    assert "error: a case could not run to its end" in outcome.out
    assert re.search(r"on host\[0\]: [\d,]+ bytes are free there", outcome.out)


def test_what_runs_otherwise_than_asked_is_said_on_stderr(prompts):
    outcome = harness("run", "--suite", "batch", "--case", "slots-9", "--batch", 9, "--prompts", prompts, *SMALL)
    assert outcome.code == 0
    assert outcome.err == "note: batch=9 runs as 8 slots: a window holds 8 rows\n"


def test_fail_fast_stops_at_the_first_case_that_is_not_exact(prompts):
    outcome = harness("run", "--suite", "batch", "--batch", 1, "--fail-fast", "--prompts", prompts, *SMALL)
    assert outcome.code == 2
    assert "1 case," in outcome.out


def test_suites_are_named_repeatedly_or_with_commas(prompts):
    common = ("--prompts", prompts, *SMALL, "--case", "slots-2", "--batch", 2)
    assert re.findall(r"^ (\w+) +exact", harness("run", "--suite", "split,batch", *common).out, re.M) == ["batch"]
    assert re.findall(r"^ (\w+) +exact", harness("run", "--suite", "split", "--suite", "batch", *common).out, re.M) == ["batch"]


def test_no_colour_reaches_a_file(prompts, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "")
    assert "\x1b" not in harness("run", "--suite", "batch", "--case", "slots-2", "--prompts", prompts, *SMALL).out


def test_an_interrupt_ends_with_130(prompts, monkeypatch):
    monkeypatch.setattr(judging, "compare", _interrupt)
    outcome = harness("run", "--suite", "batch", "--prompts", prompts, *SMALL)
    assert (outcome.code, outcome.out, outcome.err) == (130, "", "strata-harness: interrupted\n")


def _interrupt(*arguments):
    raise KeyboardInterrupt
