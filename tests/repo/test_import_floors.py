"""Imports go down only: every room stays within its line of the table, and no module is in a circle."""

import pytest

from tests.repo.floors import CUDA, FLOORS
from tests.repo.source import Module, modules


def own_imports(module: Module) -> set[str]:
    """Imported names of our packages."""
    return {name for name in module.imports() if name.split(".")[0] in ("strata", "harness")}


def trespasses(module: Module) -> list[str]:
    """Imports that the table does not allow."""
    rooms = {name: ".".join(name.split(".")[:2]) for name in own_imports(module)}
    allowed = FLOORS[module.room] | {module.room}
    return sorted(name for name, room in rooms.items() if room not in allowed)


def upward_imports(module: Module) -> list[str]:
    """Imports of a module of `strata.cuda` from rooms that come after its own."""
    below = CUDA[: CUDA.index(module.name.split(".")[2]) + 1]
    return sorted(name for name in own_imports(module) if name.startswith("strata.cuda.") and name.split(".")[2] not in below)


def imported_modules(module: Module, known: set[str]) -> set[str]:
    """The modules that an import executes: `from a.b import c` is a.b.c where that is a module, else a.b."""
    found = set()
    for name in own_imports(module):
        found.add(name if name in known else name.rpartition(".")[0])
    return found & known - {module.name}


def circle_in(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules of one import circle, or nothing."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return path[path.index(name) :] + [name]
        if name in done:
            return []
        for other in sorted(graph[name]):
            if circle := visit(other, [*path, name]):
                return circle
        done.add(name)
        return []

    return next((circle for name in sorted(graph) if (circle := visit(name, []))), [])


@pytest.mark.parametrize("module", modules("strata"), ids=lambda module: module.name)
def test_a_room_imports_only_from_the_floors_below_it(module):
    assert module.room in FLOORS, f"{module.room} has no line in tests/repo/floors.py"
    assert trespasses(module) == []


@pytest.mark.parametrize("module", [m for m in modules("strata/cuda") if m.name != "strata.cuda"], ids=lambda module: module.name)
def test_a_room_of_the_cuda_executor_imports_only_from_those_before_it(module):
    assert module.name.split(".")[2] in CUDA, f"{module.name} lies in no room of tests/repo/floors.py"
    assert upward_imports(module) == []


def test_an_import_from_a_later_room_of_the_cuda_executor_is_seen():
    module = Module.of("strata.cuda.machine.odd", "from strata.cuda.card import launch\n")
    assert upward_imports(module) == ["strata.cuda.card.launch"]


def test_the_engine_never_imports_the_harness():
    assert [m.name for m in modules("strata") if any(name.startswith("harness") for name in own_imports(m))] == []


def test_no_module_is_part_of_an_import_circle():
    every = modules("strata", "harness")
    known = {module.name for module in every}
    assert circle_in({module.name: imported_modules(module, known) for module in every}) == []


def test_a_trespass_is_seen_even_inside_a_function():
    module = Module.of("strata.numerics.odd", "def late():\n    from strata.host.executor import HostExecutor\n")
    assert trespasses(module) == ["strata.host.executor.HostExecutor"]


def test_an_import_for_type_checkers_only_is_no_trespass():
    module = Module.of("strata.numerics.odd", "if TYPE_CHECKING:\n    from strata.host.executor import HostExecutor\n")
    assert trespasses(module) == []


def test_a_circle_of_three_is_seen():
    assert circle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": set()}) == ["a", "b", "c", "a"]
    assert circle_in({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
