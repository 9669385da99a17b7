"""The draft layer's vocabulary: from the key, from a file, or whole."""

import struct

import pytest

from strata.model.config_reader import read_config
from strata.model.files import open_model
from tests.unit.model import synthetic
from tests.unit.model.damage import refusal

KEY = "qwen4exp.nextn.draft_token_ids"


@pytest.fixture
def model():
    model = synthetic.build_with_draft(seed=1)
    model.tensors.clear()
    return model


@pytest.fixture
def model_without_key(model):
    del model.keys[KEY]
    return model


def read_ids(model, path):
    return read_config(open_model(model.write(path / "tiny.gguf"))).draft_token_ids


def write_ids(path, ids):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(struct.pack(f"<{len(ids)}i", *ids))


def test_the_key_comes_first_and_is_returned_ascending(tmp_path, model):
    model.keys[KEY] = [9, 3, 200]
    write_ids(tmp_path / "draft_vocab.bin", [1, 2])
    assert read_ids(model, tmp_path) == (3, 9, 200)


@pytest.mark.parametrize("place", ["draft_vocab.bin", "rt/draft_vocab.bin"])
def test_a_file_beside_the_model_stands_in_for_the_key(tmp_path, model_without_key, place):
    write_ids(tmp_path / place, [7, 5, 264])
    assert read_ids(model_without_key, tmp_path) == (5, 7, 264)


def test_without_key_and_file_every_token_may_be_drafted(tmp_path, model_without_key):
    assert read_ids(model_without_key, tmp_path) == tuple(range(265))


def test_a_model_without_draft_layer_has_no_draft_vocabulary(tmp_path):
    model = synthetic.build(seed=1)
    model.tensors.clear()
    write_ids(tmp_path / "draft_vocab.bin", [99999])
    assert read_ids(model, tmp_path) == ()


@pytest.mark.parametrize(
    ("ids", "reason"), [([3, 265], "265 tokens"), ([-1, 3], "265 tokens"), ([3, 4, 3], "twice"), ([], "no token")]
)
def test_a_file_of_another_model_is_refused(tmp_path, model_without_key, ids, reason):
    write_ids(tmp_path / "draft_vocab.bin", ids)
    error = refusal(lambda: read_ids(model_without_key, tmp_path))
    assert "draft_vocab.bin" in error.what and reason in error.why


def test_an_id_out_of_range_is_named(tmp_path, model):
    model.keys[KEY] = [1, 4000]
    assert refusal(lambda: read_ids(model, tmp_path)).what == f"key {KEY}: token id 4000"


def test_a_file_of_broken_length_is_refused(tmp_path, model_without_key):
    (tmp_path / "draft_vocab.bin").write_bytes(b"12345")
    assert "5 bytes are not whole" in refusal(lambda: read_ids(model_without_key, tmp_path)).why
