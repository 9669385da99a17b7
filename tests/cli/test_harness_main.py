"""`strata-harness` itself: instant help, the list of suites, the environment, progress where somebody looks."""

import io
import json
import subprocess
import sys

import pytest

from harness.cli.options import add_options, read_options
from harness.cli.table import COMMANDS
from harness.options import Options
from harness.report import progress
from harness.suites.table import SUITES
from strata.cli.parser import Parser
from tests.cli.harness_calls import harness

HEAVY = ("numba", "numpy", "rich", "llvmlite")


@pytest.mark.parametrize("arguments", [["--help"], *([command.name, "--help"] for command in COMMANDS)])
def test_help_imports_nothing_heavy(arguments):
    script = (
        "import sys\nfrom harness.cli.main import main\n"
        f"code = main({arguments!r})\nprint([name for name in {HEAVY!r} if name in sys.modules], code, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == "[] 0\n"
    assert "usage: strata-harness" in done.stdout


def test_help_names_every_command_and_the_exit_codes():
    out = harness("--help").out
    assert all(command.name in out and command.purpose in out for command in COMMANDS)
    assert "0 all exact, 1 something differs, 2 could not judge" in " ".join(out.split())


def test_list_prints_every_suite_with_its_purpose():
    outcome = harness("list")
    assert (outcome.code, outcome.err) == (0, "")
    assert all(suite.name in outcome.out and suite.purpose in outcome.out for suite in SUITES.values())


def test_env_prints_versions_processor_cache_and_devices():
    facts = json.loads(harness("env", "--json").out)
    assert {"python", "numba", "llvmlite", "numpy", "processor", "features", "usable cores", "kernel cache", "numba.cuda", "devices"} <= set(facts)
    assert all(f"{name}" in harness("env").out for name in facts)


@pytest.mark.parametrize(
    "options",
    [
        Options(),
        Options(level=2, seed=9, model="m.gguf", prompts="p q.json", max_new=0, batch=4, batch_groups=0, layer_split=(4, 8)),
        Options(split_device=(0,), devices="host,host:256m", rounding="wide", prefill=7, kv="int8", context=512, threads=1, batch_groups=2),
    ],
)
def test_options_written_as_arguments_are_read_back_as_they_were(options):
    parser = Parser()
    add_options(parser)
    assert read_options(parser.parse_args(options.arguments())) == options


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize(("stream", "is_shown"), [(Terminal(), True), (io.StringIO(), False)])
def test_progress_is_drawn_on_stderr_where_it_is_a_terminal(monkeypatch, capsys, stream, is_shown):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress.sys, "stderr", stream)
    cases = [(next(iter(SUITES.values())), None)]
    monkeypatch.setattr(progress, "_name", lambda cases, index: f"case {index}")
    assert list(progress.watched(iter(["result"]), cases)) == ["result"]
    assert ("case 0" in stream.getvalue()) == is_shown
    assert capsys.readouterr().out == ""
