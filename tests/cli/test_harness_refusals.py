"""What cannot be judged is refused in one line that names the value and the remedy, before anything runs."""

import pytest

from tests.cli.harness_calls import harness, prompts_file, refusal


@pytest.mark.parametrize(
    ("options", "named", "remedy"),
    [
        (("--suite", "batsh"), "suite=batsh", "use one of batch, split"),
        (("--case", "slots-99"), "case=slots-99", "slots-2, slots-3"),
        (("--suite", "split", "--layer-split", 12), "layer_split=12", "give the first layer of each later stage"),
        (("--suite", "split", "--layer-split", "4,4"), "4 does not rise above 4", "as 4,8"),
        (("--suite", "split", "--layer-split", "a"), "layer-split=a", "--layer-split 4"),
        (("--suite", "split", "--layer-split", 6, "--devices", "host"), "2 stages need 2 devices", "--split-device 0"),
        (("--suite", "split", "--layer-split", 6, "--split-device", 3, "--devices", "host,host"), "split_device=3", "use one of them"),
        (("--suite", "pipeline", "--batch", 4, "--batch-groups", 3), "batch_groups=3", "use a divisor"),
        (("--suite", "pipeline", "--devices", "host"), "suite=pipeline", "more devices"),
        (("--batch-groups", "many"), "batch-groups=many", "give one"),
        (("--model", "/no/such/model"), "/no/such/model", "check the path"),
        (("--prompts", "/no/such/prompts.json"), "prompts=/no/such/prompts.json", "check the path"),
        (("--pcie-frac", "half"), "pcie-frac=half", "it is not a number"),
        (("--pcie-frac", "2", "--expert-cache", "5"), "pcie_frac=2.0", "it is not a share"),
        (("--rounding", "exactly"), "rounding=exactly", "use one of canonical, device, grouped, wide"),
        (("--kv", "f64"), "f64", "use one of"),
        (("--suite", "batch", "--devices", "cuda:99"), "cuda:99", "use"),
        (("--context", 32), "the context has 32", "use a larger --context"),
        (("--max-new", 5000), "max_new=5000", "ask for fewer tokens"),
        (("--max-new", -1), "max-new=-1", "use 0 or more"),
        (("--max-new", "few"), "max-new=few", "give one, as --max-new 4"),
        (("--level", 3), "level=3", "use 1 or 2"),
        (("--json", "/no/such/folder/x.json"), "json=/no/such/folder/x.json", "a folder that exists"),
        (("--nonsense",), "--nonsense", "see strata-harness --help"),
    ],
)
def test_a_wrong_option_is_one_line_with_the_value_and_the_remedy(options, named, remedy):
    line = refusal("run", *options)
    assert named in line
    assert remedy in line


def test_a_prompt_longer_than_the_context_is_refused(tmp_path):
    line = refusal("run", "--suite", "batch", "--prompts", prompts_file(tmp_path, [[1, 2], [3] * 4096]))
    assert "prompt of 4096 tokens" in line
    assert "the context has 4096" in line


@pytest.mark.parametrize("token", [4096, -1])
def test_a_token_that_the_model_does_not_have_is_refused(tmp_path, token):
    line = refusal("run", "--suite", "batch", "--prompts", prompts_file(tmp_path, [[1, 2], [3, token]]))
    assert f"token id {token}" in line
    assert "use ids from 0" in line


def test_an_empty_prompt_is_refused(tmp_path):
    assert "there is no token to start from" in refusal("run", "--suite", "batch", "--prompts", prompts_file(tmp_path, [[1], []]))


def test_a_file_that_holds_no_prompts_is_refused(tmp_path):
    path = tmp_path / "prompts.json"
    path.write_text('{"prompts": 3}')
    assert "it is not a list" in refusal("run", "--prompts", path)


def test_a_model_without_prompts_beside_it_asks_for_some(tmp_path):
    from harness.scope import MODEL

    (tmp_path / "model.gguf").symlink_to(MODEL / "strata-mini-mix.gguf")
    assert "name a prompts file with --prompts" in refusal("run", "--model", tmp_path / "model.gguf")


@pytest.mark.parametrize("arguments", [(), ("runn",), ("--suite", "batch")])
def test_without_a_known_subcommand_nothing_runs(arguments):
    refusal(*arguments)


def test_an_unexpected_failure_is_a_report_to_paste(monkeypatch):
    from harness.cli import run as run_command

    def fail(arguments):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(run_command, "read_options", fail)
    outcome = harness("run")
    assert (outcome.code, outcome.out) == (2, "")
    assert "ZeroDivisionError: planted" in outcome.err
    assert "versions: python" in outcome.err
