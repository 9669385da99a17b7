"""Files are small, functions short, modules introduced by a docstring and named so that they shadow nothing."""

import ast
from statistics import median

import pytest

from tests.repo.source import FUNCTIONS, PACKAGES, Module, functions_of, modules

FILE_LINES = 400
FUNCTION_LINES = 80
MEDIAN_LINES = 120
SHADOWING = {"bisect", "select", "signal", "queue", "types", "random", "trace", "profile", "platform", "token"}
EVERY = modules("strata", "harness", "tests")
OURS = modules(*PACKAGES)


def n_lines(module: Module) -> int:
    return module.text.count("\n")


def own_lines(function: ast.FunctionDef) -> int:
    """Lines of a function's body without those of functions nested in it.

    A factory is as long as what it says itself; a kernel's parameters, one a line, are its table of contents.
    """
    inner = [node for statement in function.body for node in outermost_functions(statement)]
    return function.end_lineno - function.body[0].lineno + 1 - sum(node.end_lineno - node.lineno + 1 for node in inner)


def outermost_functions(node: ast.AST) -> list[ast.FunctionDef]:
    """The functions below a node that are not nested in another one there."""
    if isinstance(node, FUNCTIONS):
        return [node]
    return [found for child in ast.iter_child_nodes(node) for found in outermost_functions(child)]


def long_functions(module: Module) -> list[str]:
    """Functions over the limit, as `name: lines`."""
    sizes = [(f.name, own_lines(f)) for f in functions_of(module.tree)]
    return [f"{name}: {size}" for name, size in sizes if size > FUNCTION_LINES]


def lacks_docstring(module: Module) -> bool:
    """A file that says anything says first what it is; empty package markers say nothing."""
    return bool(module.tree.body) and not ast.get_docstring(module.tree)


@pytest.mark.parametrize("module", EVERY, ids=lambda module: module.name)
def test_a_file_holds_one_idea(module):
    assert n_lines(module) <= FILE_LINES
    assert long_functions(module) == []


def test_most_files_are_small():
    assert median(n_lines(module) for module in OURS if module.tree.body) <= MEDIAN_LINES


def test_every_module_begins_with_a_docstring():
    assert [module.name for module in EVERY if lacks_docstring(module)] == []


def test_no_module_shadows_one_of_the_standard_library():
    assert [module.name for module in OURS if module.name.rpartition(".")[2] in SHADOWING] == []


def test_a_factory_does_not_count_the_lines_of_what_it_makes():
    inner = "    def g():\n" + "        x = 1\n" * FUNCTION_LINES
    assert long_functions(Module.of("strata.odd", "def f():\n" + inner + "    return g\n")) == []


def test_a_long_function_and_a_missing_docstring_are_seen():
    long = Module.of("strata.odd", "def f():\n" + "    x = 1\n" * (FUNCTION_LINES + 1))
    assert long_functions(long) == [f"f: {FUNCTION_LINES + 1}"] and lacks_docstring(long)
    assert not lacks_docstring(Module.of("strata.odd", '"""Says what it is."""\n'))
