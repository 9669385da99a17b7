"""Routing profiles: both forms, and the ones of another model."""

import json

import numpy as np
import pytest

from strata.model.config_reader import read_config
from strata.model.files import open_model
from strata.model.profile_file import find_profile, read_profile
from tests.unit.model import synthetic
from tests.unit.model.damage import refusal
from tests.unit.model.fixture_files import FOLDER, MAIN

CONFIG = synthetic.TINY


def write_json(path, **changes):
    content = {"layers": 4, "experts": 8, "pairs": [[3, 7], [0, 0], [3, 1]], "share": [0.5, 0.3, 0.2], **changes}
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}), encoding="utf-8")
    return path


def write_binary(path, pairs):
    np.asarray(pairs, dtype="<i4").tofile(path)
    return path


def test_both_forms_of_the_fixtures_profile_agree():
    config = read_config(open_model(MAIN))
    from_json = read_profile(FOLDER / "strata-mini-profile.json", config)
    from_binary = read_profile(FOLDER / "strata-mini-profile.bin", config)
    assert from_json.pairs.shape == (768, 2) and from_json.pairs.dtype == from_binary.pairs.dtype == np.int32
    assert np.array_equal(from_json.pairs, from_binary.pairs)
    assert from_json.pairs[0].tolist() == [11, 52]
    assert len(np.unique(from_json.pairs, axis=0)) == 768
    assert np.all(np.diff(from_json.shares) <= 0) and abs(from_json.shares.sum() - 1) < 1e-4
    assert from_binary.shares is None


def test_a_profile_may_stop_before_the_coldest_pairs(tmp_path):
    profile = read_profile(write_json(tmp_path / "p.json"), CONFIG)
    assert profile.pairs.tolist() == [[3, 7], [0, 0], [3, 1]] and profile.shares.tolist() == [0.5, 0.3, 0.2]
    assert read_profile(write_binary(tmp_path / "p.bin", [[3, 7]]), CONFIG).pairs.tolist() == [[3, 7]]


def test_sizes_and_shares_may_be_absent(tmp_path):
    assert read_profile(write_json(tmp_path / "p.json", layers=None, experts=None, share=None), CONFIG).shares is None


@pytest.mark.parametrize(
    ("changes", "what", "why"),
    [
        ({"layers": 12}, "layers=12", "this model has 4"),
        ({"experts": 64}, "experts=64", "this model has 8"),
        ({"pairs": [[0, 0], [4, 0], [1, 1]]}, "layer=4 (pair 1)", "4 layers, so the profile is of another model"),
        ({"pairs": [[0, 0], [1, 0], [1, 8]]}, "expert=8 (pair 2)", "8 experts, so the profile is of another model"),
        ({"pairs": [[0, -1], [1, 0], [1, 1]]}, "expert=-1 (pair 0)", "another model"),
        ({"pairs": [[1, 2], [3, 4], [1, 2]]}, "layer=1 expert=2", "twice"),
        ({"pairs": [], "share": None}, "", "not a list of [layer, expert]"),
        ({"pairs": [[1, 2, 3]]}, "", "not a list of [layer, expert]"),
        ({"pairs": [[1, 2], [3]]}, "", "not a profile"),
        ({"pairs": [["a", "b"]]}, "", "not a list of [layer, expert]"),
        ({"share": [1.0]}, "", "1 entries for 3 pairs"),
        ({"share": ["x"] * 3}, "", "not a profile"),
        ({"pairs": None}, "", "not a profile"),
    ],
)
def test_profiles_that_do_not_fit_are_refused(tmp_path, changes, what, why):
    path = write_json(tmp_path / "p.json", **changes)
    error = refusal(lambda: read_profile(path, CONFIG))
    assert str(path) in error.what and what in error.what and why in error.why


def test_a_binary_profile_of_another_model_is_refused(tmp_path):
    path = write_binary(tmp_path / "p.bin", [[0, 1], [11, 3]])
    assert "layer=11 (pair 1)" in refusal(lambda: read_profile(path, CONFIG)).what


def test_the_fixtures_profile_is_refused_for_another_model():
    for name, part in (("strata-mini-profile.json", "layers=12"), ("strata-mini-profile.bin", "layer=11")):
        assert part in refusal(lambda name=name: read_profile(FOLDER / name, CONFIG)).what


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("p.bin", b"1234567", "7 bytes"),
        ("p.bin", b"", "no pair"),
        ("p.json", b"{", "not a profile"),
        ("p.json", b"[1]", "not a profile"),
    ],
)
def test_damaged_profiles_are_refused(tmp_path, name, content, why):
    (tmp_path / name).write_bytes(content)
    assert why in refusal(lambda: read_profile(tmp_path / name, CONFIG)).why


def test_a_missing_profile_is_refused(tmp_path):
    assert "cannot be read" in refusal(lambda: read_profile(tmp_path / "none.json", CONFIG)).why


def test_a_profile_beside_a_model_is_found_unless_there_are_several(tmp_path):
    assert find_profile(FOLDER) == FOLDER / "strata-mini-profile.json"
    assert find_profile(tmp_path) is None
    binary = write_binary(tmp_path / "expert-profile.bin", [[0, 1]])
    assert find_profile(tmp_path) == binary
    write_binary(tmp_path / "other-profile.bin", [[0, 1]])
    assert find_profile(tmp_path) is None
