"""The frame around all commands: quick help, exit codes, reports of what nobody expected."""

import signal
import subprocess
import sys

import pytest

from strata.cli import env
from strata.cli.main import COMMANDS, main
from tests.cli.calls import strata

HEAVY = ("numba", "numpy", "rich", "llvmlite", "gguf", "tokenizers", "jinja2")


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in COMMANDS)], ids=" ".join)
def test_help_imports_nothing_heavy(arguments):
    script = (
        "import sys\nfrom strata.cli.main import main\n"
        f"code = main({arguments!r})\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\nsys.exit(code)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "[]\n")
    assert ended.stdout.startswith("usage: strata")


def failing(error):
    def execute(options):
        raise error

    return execute


def test_an_unexpected_failure_is_a_report_to_paste(monkeypatch):
    monkeypatch.setattr(env, "execute", failing(RuntimeError("the sea is dry")))
    outcome = strata("env")
    assert outcome.code == 2 and outcome.out == ""
    for part in ("fault of the program", "command: strata", "versions: python", "Traceback", "RuntimeError: the sea is dry"):
        assert part in outcome.err


def test_an_interrupt_ends_with_130(monkeypatch):
    monkeypatch.setattr(env, "execute", failing(KeyboardInterrupt()))
    outcome = strata("env")
    assert (outcome.code, outcome.err) == (130, "strata: interrupted\n")


def test_an_interrupt_while_text_comes_ends_with_130_and_no_traceback():
    script = "import sys\nfrom strata.cli.main import main\nsys.exit(main(['run', '--prompt', 'The sea', '--max-new', '3000']))"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == b"strata: interrupted\n"


def test_a_reader_that_leaves_ends_it_quietly():
    script = "import sys\nfrom strata.cli.main import main\nsys.exit(main(['env']))"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.wait(60) == 2 and process.stderr.read() == b""


def test_main_takes_the_processes_own_arguments_by_default(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["strata", "--help"])
    assert main() == 0 and capsys.readouterr().out.startswith("usage: strata COMMAND")
