"""The JSON of a run holds the environment, both arms' settings and their difference, and every difference found."""

import json

import pytest

from tests.cli.harness_calls import harness, prompts_file


@pytest.fixture(scope="module")
def differing():
    """The document of a run that differs."""
    outcome = harness("run", "--suite", "batch", "--case", "slots-2", "--rounding", "grouped", "--json", "-")
    assert outcome.code == 1
    return json.loads(outcome.out)


def test_with_a_dash_stdout_is_the_document_and_nothing_else(differing):
    assert differing["format"] == "strata-harness run 1"
    assert (differing["verdict"], differing["exit_code"]) == ("differs", 1)


def test_the_environment_and_the_options_stand_beside_the_result(differing):
    assert {"python", "numba", "llvmlite", "numpy", "processor", "features"} <= set(differing["environment"])
    assert (differing["options"]["rounding"], differing["options"]["seed"]) == ("grouped", 1)


def test_both_arms_stand_with_what_was_requested_and_what_was_in_force(differing):
    (case,) = differing["suites"][0]["cases"]
    assert case["left"]["requested"]["batch"] == "1"
    assert case["right"]["requested"]["batch"] == "2"
    assert case["right"]["effective"]["rounding"] == "grouped"
    assert case["right"]["requested"]["prefill"] == "0"
    assert int(case["right"]["effective"]["prefill"]) > 0
    assert {"name": "batch", "left": "1", "right": "2"} in case["in_force"]


def test_differences_stand_with_tokens_hashes_and_margins(differing):
    (case,) = differing["suites"][0]["cases"]
    with_token = [difference for difference in case["differences"] if difference["kind"] == "token"]
    assert with_token
    token = with_token[0]["token"]
    assert token["left"]["token"] != token["right"]["token"]
    assert token["left"]["digest"] != token["right"]["digest"]
    assert token["left"]["margin"] == token["left"]["best_logit"] - token["left"]["second_logit"]
    assert case["n_rows_equal"] < case["n_rows"]
    assert case["command"] == "strata-harness run --suite batch --case slots-2 --rounding grouped"


def test_a_file_is_written_beside_the_table(tmp_path):
    path = tmp_path / "result.json"
    outcome = harness(
        "run", "--suite", "batch", "--case", "slots-2", "--prompts", prompts_file(tmp_path), "--max-new", 4, "--json", path
    )
    document = json.loads(path.read_text())
    (suite,) = document["suites"]
    assert (outcome.code, document["exit_code"], suite["verdict"]) == (0, 0, "exact")
    assert (suite["n_tokens"], suite["n_rows"], document["n_rows"]) == (12, 12, 12)
    assert suite["counters"]["windows_with_company"] > 0
    assert "exact" in outcome.out
