"""`python3 -m harness.fresh`: a sentence where it cannot go on, and nothing installed twice."""

import ast
import subprocess
import sys
from collections import namedtuple

import pytest

from harness import fresh

Version = namedtuple("Version", "major minor")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A project in a folder of its own; commands are noted down instead of run."""
    for name in ("setup.cfg", "pyproject.toml"):
        (tmp_path / name).write_text(name)
    commands = []

    def call(command):
        commands.append(command)
        if command[1:3] == ["-m", "venv"]:
            (tmp_path / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
            (tmp_path / ".venv" / "bin" / "python").touch()
        return 0

    monkeypatch.setattr(fresh, "ROOT", tmp_path)
    monkeypatch.setattr(fresh, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(fresh.subprocess, "call", call)
    monkeypatch.setattr(fresh.os, "execv", lambda path, command: commands.append(command))
    monkeypatch.setattr(fresh.os, "chdir", lambda path: None)
    monkeypatch.setattr(fresh.os, "sched_getaffinity", lambda process: {0, 1, 2}, raising=False)
    monkeypatch.setattr(fresh, "CARDS", tmp_path / "cards")
    return commands


def installed(commands):
    return [command[-1].rpartition("/")[2] for command in commands if "install" in command]


def test_the_first_run_makes_an_environment_installs_and_runs(machine, tmp_path):
    fresh.main(["run", "--suite", "batch"])
    assert machine[0][1:3] == ["-m", "venv"] and len(installed(machine)) == 1
    assert machine[-1] == [str(tmp_path / ".venv/bin/strata-harness"), "run", "--suite", "batch"]


def test_the_second_run_only_runs(machine):
    fresh.main(["run"])
    before = len(machine)
    fresh.main(["run"])
    assert len(machine) == before + 1


def test_testing_after_running_installs_the_extra_and_no_environment(machine, tmp_path):
    fresh.main(["run"])
    before = len(machine)
    fresh.main(["test", "-q"])
    assert installed(machine[before:]) == [f"{tmp_path.name}[test]"] and len(machine) == before + 2
    assert machine[-1][1:] == ["-m", "pytest", *fresh.SHARED_BY_TWO, "-q"]


def test_tests_are_not_shared_on_one_core(machine, monkeypatch):
    monkeypatch.setattr(fresh.os, "sched_getaffinity", lambda process: {5}, raising=False)
    fresh.main(["test", "-q"])
    assert machine[-1][1:] == ["-m", "pytest", "-q"]


def test_tests_that_measure_a_card_are_not_shared(machine):
    fresh.CARDS.touch()
    fresh.main(["test", "tests/gpu"])
    assert machine[-1][1:] == ["-m", "pytest", "tests/gpu"]


def test_running_after_testing_installs_nothing(machine):
    fresh.main(["test"])
    before = len(machine)
    fresh.main(["run"])
    assert len(machine) == before + 1


def test_a_further_extra_is_installed_on_request(machine, tmp_path):
    fresh.main(["test", "--with", "cuda", "tests/ptx"])
    assert installed(machine) == [f"{tmp_path.name}[test,cuda]"] and machine[-1][-1] == "tests/ptx"


@pytest.mark.parametrize("name", ["setup.cfg", "pyproject.toml"])
def test_changed_packaging_is_installed_again(machine, tmp_path, name):
    fresh.main(["run"])
    (tmp_path / name).write_text("changed")
    fresh.main(["run"])
    assert len(installed(machine)) == 2


def test_another_python_makes_the_environment_anew(machine, monkeypatch):
    fresh.main(["run"])
    monkeypatch.setattr(fresh.sys, "version", "3.99.0 (another)")
    fresh.main(["run"])
    assert sum(command[1:3] == ["-m", "venv"] for command in machine) == 2


def test_an_old_python_gets_a_sentence(machine, monkeypatch, capsys):
    monkeypatch.setattr(fresh.sys, "version_info", Version(3, 8))
    assert fresh.main(["run"]) == 2 and machine == []
    assert capsys.readouterr().err.startswith("harness.fresh: error: python=3.8 is too old, 3.11 or newer is needed; ")


def test_a_failed_installation_is_told_and_tried_again(machine, monkeypatch, capsys):
    noting = fresh.subprocess.call
    monkeypatch.setattr(fresh.subprocess, "call", lambda command: noting(command) or int("install" in command))
    assert fresh.main(["run"]) == 2
    assert "ended with exit code 1" in capsys.readouterr().err
    monkeypatch.setattr(fresh.subprocess, "call", noting)
    fresh.main(["run"])
    assert len(installed(machine)) == 2


@pytest.mark.parametrize("arguments", [[], ["fly"], ["test", "--with"]], ids=str)
def test_a_command_that_cannot_be_read_shows_the_usage(machine, capsys, arguments):
    assert fresh.main(arguments) == 2 and machine == []
    assert "usage: python3 -m harness.fresh run|test" in capsys.readouterr().err


def test_an_old_interpreter_can_parse_the_file():
    source = (fresh.Path(fresh.__file__)).read_text()
    ast.parse(source, feature_version=(3, 6))
    with pytest.raises(SyntaxError):
        ast.parse("match x:\n    case 1: pass\n", feature_version=(3, 6))


def test_it_imports_the_standard_library_only():
    script = "import sys\nimport harness.fresh\nprint(sorted(n for n in sys.modules if n.split('.')[0] in ('numpy', 'numba', 'strata', 'rich')))"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
