"""Finding and opening the files of a model."""

import numpy as np
import pytest

from strata.model.files import find_files, open_model
from tests.unit.model import synthetic
from tests.unit.model.damage import refusal


@pytest.fixture
def model():
    return synthetic.build_with_draft(seed=3)


def write_shards(model, folder, parts=("blk.0", "blk.1", "blk.2", "rest")):
    """Write a model as shards: only the first has the model's keys, as converters do it."""
    shards = [{} for _ in parts]
    for name, content in model.tensors.items():
        shards[next((i for i, part in enumerate(parts) if part in name), len(parts) - 1)][name] = content
    paths = []
    for number, tensors in enumerate(shards):
        keys = dict(model.keys) if number == 0 else {}
        keys |= {"split.no": number, "split.count": len(parts), "split.tensors.count": len(model.tensors)}
        path = folder / f"tiny-{number + 1:05d}-of-{len(parts):05d}.gguf"
        paths.append(synthetic.SyntheticModel(model.config, keys, tensors).write(path))
    return paths


def test_a_file_gives_its_tensors_as_mapped_bytes(tmp_path, model):
    path = model.write(tmp_path / "tiny.gguf")
    files = open_model(path)
    assert files.paths == (path,)
    assert files.tensors.keys() == model.tensors.keys()
    for name, (shape, type_name, raw) in model.tensors.items():
        tensor = files.tensors[name]
        assert (tensor.name, tensor.shape, tensor.type_name, tensor.path) == (name, shape, type_name, path)
        assert tensor.raw.dtype == np.uint8 and tensor.raw.ndim == 1
        assert np.array_equal(tensor.raw, raw)
        assert isinstance(base_of(tensor.raw), np.memmap) and not tensor.raw.flags.owndata


def base_of(array):
    while array.base is not None and not isinstance(array, np.memmap):
        array = array.base
    return array


def test_the_draft_layers_file_beside_a_model_is_opened_with_it(tmp_path, model):
    trunk = {name: content for name, content in model.tensors.items() if "blk.4." not in name}
    draft = {name: content for name, content in model.tensors.items() if "blk.4." in name}
    main = synthetic.SyntheticModel(model.config, model.keys, trunk).write(tmp_path / "tiny.gguf")
    beside = synthetic.SyntheticModel(model.config, model.keys, draft).write(tmp_path / "tiny-mtp.gguf")
    for given in (main, beside, [main, beside], [beside, main], [main, main], tmp_path):
        files = open_model(given)
        assert files.paths == (main, beside)
        assert files.tensors.keys() == model.tensors.keys()


def test_a_draft_layers_file_of_another_model_is_left_alone(tmp_path, model):
    main = model.write(tmp_path / "tiny.gguf")
    model.write(tmp_path / "other-mtp.gguf")
    assert open_model(main).paths == (main,)


@pytest.mark.parametrize("named", [0, 2, 3])
def test_naming_one_shard_opens_all(tmp_path, model, named):
    paths = write_shards(model, tmp_path)
    files = open_model(paths[named])
    assert files.paths == tuple(paths)
    assert files.tensors.keys() == model.tensors.keys()


def test_a_folder_of_shards_is_one_model(tmp_path, model):
    paths = write_shards(model, tmp_path)
    assert open_model(tmp_path).paths == tuple(paths)


def test_shards_find_their_draft_file(tmp_path, model):
    paths = write_shards(model, tmp_path)
    draft = tmp_path / "tiny-mtp.gguf"
    draft.write_bytes(b"GGUF")
    assert find_files([paths[0]]) == find_files([draft]) == (*paths, draft)


def test_a_draft_file_without_its_model_is_refused(tmp_path, model):
    path = model.write(tmp_path / "tiny-mtp.gguf")
    model.write(tmp_path / "other.gguf")
    error = refusal(lambda: open_model(path))
    assert error.what == str(path) and "draft layer only" in error.why and "main file" in error.remedy


def test_a_missing_shard_is_named(tmp_path, model):
    paths = write_shards(model, tmp_path)
    paths[2].unlink()
    for named in (paths[0], tmp_path):
        error = refusal(lambda named=named: open_model(named))
        assert "tiny-00003-of-00004.gguf" in error.what and "shard" in error.why


def test_a_renamed_shard_is_noticed_by_its_own_count(tmp_path, model):
    path = write_shards(model, tmp_path)[0].rename(tmp_path / "alone.gguf")
    error = refusal(lambda: open_model(path))
    assert "alone.gguf" in error.what and "one of 4 shards and 1 are here" in error.why


def test_shards_with_fewer_tensors_than_the_model_has_are_refused(tmp_path, model):
    expected = len(model.tensors) + 1
    paths = write_shards(model, tmp_path)
    keys = {**model.keys, "split.no": 0, "split.count": 4, "split.tensors.count": expected}
    first = {name: content for name, content in model.tensors.items() if "blk.0" in name}
    synthetic.SyntheticModel(model.config, keys, first).write(paths[0])
    error = refusal(lambda: open_model(paths[0]))
    assert f"the model has {expected} tensors and its shards hold {expected - 1}" in error.why


def test_a_missing_file_is_named(tmp_path):
    error = refusal(lambda: open_model(tmp_path / "nowhere.gguf"))
    assert "nowhere.gguf" in error.what and "no such file" in error.why


def test_an_empty_folder_is_refused(tmp_path):
    assert "no .gguf file" in refusal(lambda: open_model(tmp_path)).why


def test_an_empty_list_is_refused():
    assert "empty" in refusal(lambda: open_model([])).why


def test_another_architecture_is_refused_by_name(tmp_path, model):
    model.keys["general.architecture"] = "llama"
    path = model.write(tmp_path / "llama.gguf")
    error = refusal(lambda: open_model(path))
    assert "llama.gguf" in error.what and "llama, not qwen4exp" in error.why


def test_two_models_in_one_folder_are_refused(tmp_path, model):
    model.write(tmp_path / "a.gguf")
    model.write(tmp_path / "b.gguf")
    error = refusal(lambda: open_model(tmp_path))
    assert "a.gguf" in error.why and "b.gguf" in error.why and "both hold it" in error.why


def test_files_that_disagree_on_a_key_are_refused(tmp_path, model):
    main = model.write(tmp_path / "a.gguf")
    other = synthetic.build(seed=4, n_used=3)
    other.tensors.clear()
    second = other.write(tmp_path / "b.gguf")
    error = refusal(lambda: open_model([main, second]))
    assert error.what == "key qwen4exp.expert_used_count" and "disagree" in error.why


def test_files_may_differ_in_general_keys(tmp_path, model):
    model.keys["general.name"] = "main"
    main = model.write(tmp_path / "a.gguf")
    second = synthetic.SyntheticModel(model.config, {"general.name": "other"}).write(tmp_path / "b.gguf")
    assert open_model([main, second]).keys.text("general.name") == "main"
