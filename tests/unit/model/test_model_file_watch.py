"""A model file that is cut short while it is in use."""

import os

import pytest

from strata.errors import ModelFileError
from strata.model.file_watch import FileWatch


def test_a_file_that_was_cut_is_refused_and_one_that_grew_is_not(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(bytes(1000))
    watch = FileWatch([path])
    watch.require_whole()
    with path.open("ab") as file:
        file.write(b"more")
    watch.require_whole()
    os.truncate(path, 999)
    with pytest.raises(ModelFileError, match="cut from 1,000 to 999 bytes"):
        watch.require_whole()


def test_a_file_that_was_replaced_or_removed_is_still_mapped(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(bytes(1000))
    watch, other = FileWatch([path]), tmp_path / "other"
    other.write_bytes(bytes(10))
    kept = tmp_path / "kept"
    os.link(path, kept)
    os.replace(other, path)
    watch.require_whole()
    path.unlink()
    watch.require_whole()


def test_an_engine_ends_with_an_error_when_its_file_was_cut(tmp_path):
    import shutil

    from strata.batch.engine import Engine
    from strata.batch.requests import Request
    from strata.batch.settings import EngineSettings
    from strata.model.model import load_model
    from tests.unit.model.fixture_files import FOLDER

    for file in FOLDER.glob("*.gguf"):
        shutil.copy(file, tmp_path / file.name)
    with Engine(load_model(tmp_path), EngineSettings(context=64, threads=1)) as engine:
        engine.generate([Request((1, 2, 3), 2)])
        largest = max(tmp_path.glob("*.gguf"), key=lambda file: file.stat().st_size)
        os.truncate(largest, largest.stat().st_size // 2)
        with pytest.raises(ModelFileError, match="while it was in use"):
            engine.generate([Request((1, 2, 3), 2)])
