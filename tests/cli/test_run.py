"""`strata run`: the text is the model's, however it is run; results on stdout, the rest on stderr."""

import re

import numpy as np
import pytest

from strata.cli.engine_flags import FIXTURE
from strata.model.files import open_model
from strata.model.tokenizer import read_tokenizer
from tests.cli.calls import strata

PROMPT = ("--prompt", "def add(a, b):\n", "--max-new", 12)


@pytest.fixture(scope="module")
def plain():
    return strata("run", *PROMPT).out


def test_the_text_is_the_reference_continuation():
    stored = np.load(FIXTURE / "reference-mix.npz")
    n = 16
    ids, expected = stored["p0_ids"], stored["p0_greedy"][:n]
    text = read_tokenizer(open_model(FIXTURE).keys).decode((int(token) for token in expected), skip_special=True)
    outcome = strata("run", "--prompt-ids", ",".join(map(str, ids)), "--max-new", n, "--rounding", "wide")
    assert outcome.out == text + "\n"


@pytest.mark.parametrize(
    "flags",
    [
        ("--prefill", "2"),
        ("--prefill", "auto"),
        ("--devices", "host,host,host", "--layer-split", "4,8"),
        ("--layer-split", "6", "--split-device", "0"),
        ("--batch", "8", "--threads", "1"),
    ],
    ids=" ".join,
)
def test_another_way_of_running_gives_the_same_text(plain, flags):
    assert strata("run", *PROMPT, *flags).out == plain


def test_another_prompt_gives_another_text(plain):
    assert strata("run", "--prompt", "The harbour", "--max-new", 12).out != plain


def test_a_prompt_from_a_file_is_the_same_prompt(plain, tmp_path):
    (tmp_path / "prompt.txt").write_text(PROMPT[1])
    assert strata("run", "--prompt-file", tmp_path / "prompt.txt", "--max-new", 12).out == plain


def test_chat_uses_the_template():
    written_out = strata("run", "--prompt", "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n", "--max-new", 8)
    assert strata("run", "--prompt", "Hello", "--chat", "--max-new", 8).out == written_out.out
    assert strata("run", "--prompt", "Hello", "--max-new", 8).out != written_out.out


def test_the_speed_is_told_on_stderr_only(plain):
    outcome = strata("run", *PROMPT)
    assert outcome.code == 0 and outcome.out == plain
    rate = r"\d+ tokens in \d+\.\d\d s \(\d+ tokens/s\)"
    assert re.fullmatch(rf"strata: read {rate}, decoded 11 {rate[4:]}, ended by length\n", outcome.err)


def test_what_runs_otherwise_than_asked_is_said():
    assert "batch=9 runs as 8 slots" in strata("run", *PROMPT, "--batch", 9).err


def test_no_new_token_is_no_text():
    outcome = strata("run", "--prompt", "Hello", "--max-new", 0)
    assert (outcome.code, outcome.out) == (0, "\n")
