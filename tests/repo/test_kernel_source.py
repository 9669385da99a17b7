"""What a kernel's source must not hold, because it would change bits silently.

A kernel is a function that a decorator compiles (`jit`, `kernel`, `njit`), or one nested in a factory: `build(seam)`,
or any function that defines a compiled one.
"""

import ast
from collections.abc import Iterator

import pytest

from tests.repo.source import Module, functions_of, modules

DECORATORS = {"jit", "kernel", "njit"}
FACTORY = "build"
FLOAT_EXTREMES = {"minimum", "maximum", "fmin", "fmax"}


def kernels_of(module: Module) -> Iterator[ast.FunctionDef]:
    """Every function that ends up as machine code; a kernel's own nested functions come with it."""
    for function in functions_of(module.tree):
        if _is_compiled(function):
            yield function
        elif function.name == FACTORY:
            yield from (inner for inner in functions_of(function) if inner is not function)


def _is_compiled(function: ast.FunctionDef) -> bool:
    return any(_decorator_name(decorator) in DECORATORS for decorator in function.decorator_list)


def _decorator_name(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return _decorator_name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def float_literals(module: Module) -> list[str]:
    """Bare float literals inside kernels, as `line: value`."""
    found = {
        (node.lineno, node.value)
        for kernel in kernels_of(module)
        for statement in kernel.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Constant) and isinstance(node.value, float)
    }
    return [f"{line}: {value}" for line, value in sorted(found)]


def forbidden_calls(module: Module) -> list[str]:
    """Calls inside kernels that take the smaller or larger of two floats, as `line: name`.

    The plain names are what Numba's CUDA target offers for integers and are let pass there.
    """
    names = FLOAT_EXTREMES if module.room == "strata.cuda" else FLOAT_EXTREMES | {"min", "max"}
    found = {
        (node.lineno, _decorator_name(node))
        for kernel in kernels_of(module)
        for node in ast.walk(kernel)
        if isinstance(node, ast.Call) and _decorator_name(node) in names
    }
    return [f"{line}: {name}" for line, name in sorted(found)]


def fastmath_uses(module: Module) -> list[int]:
    """Lines that pass `fastmath` to anything."""
    return [node.value.lineno for node in ast.walk(module.tree) if isinstance(node, ast.keyword) and node.arg == "fastmath"]


WITH_KERNELS = tuple(module for module in modules("strata") if any(kernels_of(module)))


@pytest.mark.parametrize("module", WITH_KERNELS, ids=lambda module: module.name)
def test_kernels_take_their_floats_from_module_level_constants(module):
    assert float_literals(module) == [], "Numba makes a bare float literal a float64: use a module-level np.float32(...)"


@pytest.mark.parametrize("module", WITH_KERNELS, ids=lambda module: module.name)
def test_kernels_compare_instead_of_taking_the_smaller_or_larger(module):
    assert forbidden_calls(module) == [], "the zero that min and max return depends on the order of their arguments"


def test_nothing_asks_for_fast_mathematics():
    assert [(module.name, fastmath_uses(module)) for module in modules("strata", "harness") if fastmath_uses(module)] == []


def test_there_are_kernels_in_the_rooms_that_compute():
    assert {module.room for module in WITH_KERNELS} >= {"strata.numerics", "strata.formats", "strata.cpu_pool", "strata.host"}


@pytest.mark.parametrize("source", [
    "@jit\ndef f(x):\n    return x * 0.5\n",
    "@kernel\ndef f(x):\n    for i in range(3):\n        x[i] = np.float32(1.0)\n",
    "@cuda.jit(device=True)\ndef f(x):\n    return -2.0 * x\n",
    "def build(seam):\n    def f(x):\n        return x + 1e-6\n    return f\n",
    "def product():\n    @njit(nogil=True)\n    def f(x):\n        return 3.0\n    return f\n",
])  # fmt: skip
def test_a_float_literal_in_a_kernel_is_seen(source):
    assert float_literals(Module.of("strata.host.odd", source)) != []


def test_float_literals_outside_kernels_and_integers_inside_are_allowed():
    source = "HALF = np.float32(0.5)\ndef plain(x=0.25):\n    return 0.5\n@jit\ndef f(x):\n    '0.5'\n    return x * HALF + x[3]\n"
    assert float_literals(Module.of("strata.host.odd", source)) == []


def test_a_minimum_in_a_kernel_and_fast_mathematics_are_seen():
    module = Module.of("strata.host.odd", "@njit(fastmath=True)\ndef f(a, b):\n    return np.fmax(min(a, b), a)\n")
    assert forbidden_calls(module) == ["3: fmax", "3: min"] and fastmath_uses(module) == [1]
