"""Input that cannot be served: one line that names the value and the remedy, exit code 2, no traceback."""

import pytest

from strata.cli.engine_flags import FIXTURE
from tests.cli.calls import refusal, strata
from tests.unit.model import damage, synthetic

RUN = ("run", "--prompt", "the")


@pytest.fixture
def sound(tmp_path):
    return synthetic.build(seed=3).write(tmp_path / "sound.gguf")


def test_a_sound_little_model_runs(sound):
    outcome = strata(*RUN, "--model", sound, "--max-new", 3)
    assert outcome.code == 0 and "error" not in outcome.err


# ---- model files


def test_a_missing_file(tmp_path):
    assert "no such file" in refusal(*RUN, "--model", tmp_path / "absent.gguf")


def test_a_folder_without_a_model(tmp_path):
    assert f"{tmp_path}: the folder holds no .gguf file" in refusal(*RUN, "--model", tmp_path)


@pytest.mark.parametrize("content", ["", "GG", "these are notes"])
def test_a_file_of_another_kind(tmp_path, content):
    path = tmp_path / "notes.gguf"
    path.write_text(content)
    assert "not a GGUF file" in refusal(*RUN, "--model", path)


@pytest.mark.parametrize("n_bytes", [24, 200, 5000])
def test_a_file_truncated_in_its_header(sound, n_bytes):
    assert f"{sound}: it is truncated" in refusal(*RUN, "--model", damage.cut(sound, n_bytes))


def test_a_file_truncated_in_its_last_tensor(sound):
    assert "it is truncated" in refusal(*RUN, "--model", damage.cut(sound, sound.stat().st_size - 64))


def test_the_shipped_model_truncated_in_the_middle(tmp_path):
    whole = FIXTURE / "strata-mini-mix.gguf"
    path = tmp_path / "half.gguf"
    path.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    assert "half.gguf: it is truncated" in refusal(*RUN, "--model", path)


def test_a_wrong_architecture(tmp_path):
    model = synthetic.build()
    model.keys = {name: value for name, value in model.keys.items() if name != "general.architecture"}
    model.keys["general.architecture"] = "llama"
    line = refusal(*RUN, "--model", model.write(tmp_path / "llama.gguf"))
    assert "its architecture is llama, not qwen4exp" in line


def test_a_missing_tensor(tmp_path):
    model = synthetic.build()
    del model.tensors["blk.2.ffn_gate_exps.weight"]
    assert "tensor blk.2.ffn_gate_exps.weight" in refusal(*RUN, "--model", model.write(tmp_path / "gap.gguf"))


@pytest.mark.parametrize("type_id", [10, 200])
def test_an_unknown_weight_type(sound, type_id):
    line = refusal(*RUN, "--model", damage.set_type_id(sound, "output.weight", type_id))
    assert "tensor output.weight" in line and f"weight type {type_id} is unknown" in line and "Q4_K" in line


# ---- the way to run


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--layer-split", "12", "--devices", "host,host"), "layer_split=12"),
        (("--layer-split", "0", "--devices", "host,host"), "layer_split=0"),
        (("--layer-split", "8,4", "--devices", "host,host,host"), "layer_split=8,4"),
        (("--layer-split", "4,4,4", "--devices", "host,host,host,host"), "write 4,8: the first layer"),
        (("--layer-split", "six"), "layer_split=six"),
        (("--layer-split", "6"), "2 stages need 2 devices"),
        (("--layer-split", "6", "--split-device", "3"), "split_device=3"),
        (("--layer-split", "6", "--split-device", "x"), "split_device=x"),
        (("--batch", "4", "--batch-groups", "3"), "batch_groups=3"),
        (("--batch", "4", "--batch-groups", "some"), "batch_groups=some"),
        (("--batch", "0"), "batch=0"),
        (("--batch", "two"), "'two'"),
        (("--devices", "tpu"), "devices=tpu"),
        (("--devices", "host:1q"), "devices=host:1q"),
        (("--devices", "host:1m"), "1,048,576 bytes are free"),
        (("--rounding", "fast"), "rounding=fast"),
        (("--kv", "f8"), "kv=f8"),
        (("--prefill", "-1"), "prefill=-1"),
        (("--context", "1000000"), "context=1000000"),
        (("--threads", "-2"), "threads=-2"),
        (("--no-such-flag",), "--no-such-flag"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_setting_that_cannot_be_honoured(flags, named):
    assert named in refusal(*RUN, *flags)


# ---- prompts


def test_an_empty_prompt():
    assert "prompt=''" in refusal("run", "--prompt", "")


def test_an_empty_prompt_file(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    assert "prompt=''" in refusal("run", "--prompt-file", tmp_path / "empty.txt")


def test_a_missing_prompt_file(tmp_path):
    assert "absent.txt" in refusal("run", "--prompt-file", tmp_path / "absent.txt")


def test_a_prompt_file_that_is_not_text(tmp_path):
    (tmp_path / "odd.txt").write_bytes(b"good\xff")
    assert "byte 4 is not UTF-8" in refusal("run", "--prompt-file", tmp_path / "odd.txt")


def test_a_prompt_longer_than_the_context():
    line = refusal("run", "--prompt", "word " * 300, "--context", 128)
    assert "the context has 128" in line and "--context" in line


def test_a_request_that_outgrows_the_context():
    assert "max_new=5000" in refusal(*RUN, "--max-new", 5000)


@pytest.mark.parametrize("token", [-1, 4096, 1 << 40])
def test_token_ids_out_of_range(token):
    assert f"token id {token}" in refusal("run", f"--prompt-ids=5,{token}")


def test_token_ids_that_are_no_numbers():
    assert "prompt_ids=5,x" in refusal("run", "--prompt-ids", "5,x")


def test_chat_needs_text():
    assert "--chat" in refusal("run", "--prompt-ids", "5", "--chat")


def test_two_prompts():
    assert "--prompt-ids" in refusal("run", "--prompt", "a", "--prompt-ids", "5")


def test_a_negative_number_of_tokens():
    assert "max_new=-1" in refusal(*RUN, "--max-new", -1)


# ---- other commands


@pytest.mark.parametrize(
    ("arguments", "named"),
    [((), "COMMAND"), (("fly",), "'fly'"), (("bench", "tpu"), "'tpu'"), (("bench", "host", "--rounds", "0"), "rounds=0")],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_command_that_cannot_be_read(arguments, named):
    assert named in refusal(*arguments)
