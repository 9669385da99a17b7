"""Printing belongs to the command lines and the reports; everybody else returns values or logs."""

import ast

from tests.repo.source import Module, modules

MAY_PRINT = ("strata.cli", "harness.cli", "harness.report", "harness.fresh")
MAY_DRAW = ("strata.cli", "harness.report")


def prints(module: Module) -> list[int]:
    """Lines that call print."""
    calls = (node for node in ast.walk(module.tree) if isinstance(node, ast.Call))
    return [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]


def test_only_command_lines_and_reports_print():
    assert {m.name: prints(m) for m in modules("strata", "harness") if prints(m) and m.room not in MAY_PRINT} == {}


def test_only_command_lines_and_reports_know_rich():
    knowing = [m for m in modules("strata", "harness") if any(name.split(".")[0] == "rich" for name in m.imports())]
    assert [m.name for m in knowing if m.room not in MAY_DRAW] == []


def test_a_print_is_seen():
    assert prints(Module.of("strata.host.odd", "def f():\n    print('here')\n")) == [2]
