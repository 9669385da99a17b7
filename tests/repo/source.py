"""The project's own Python files as parsed trees, for tests that read the house.

Does not know: any rule.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("strata", "harness")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """One file: its dotted name, path from the root, text and tree."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @staticmethod
    def of(name: str, text: str) -> "Module":
        """Parse a text as if it were the module's file."""
        return Module(name, Path(name.replace(".", "/") + ".py"), text, ast.parse(text))

    @property
    def room(self) -> str:
        """`strata.host` for everything inside it; a file of its own for what lies outside rooms."""
        return ".".join(self.name.split(".")[:2])

    def imports(self) -> Iterator[str]:
        """Every imported module's dotted name, in functions too, but not what only type checkers see."""
        skipped = {id(node) for block in _type_checking_blocks(self.tree) for node in ast.walk(block)}
        for node in ast.walk(self.tree):
            if id(node) in skipped:
                continue
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _type_checking_blocks(tree: ast.Module) -> Iterator[ast.stmt]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from node.body


@cache
def modules(*folders: str) -> tuple[Module, ...]:
    """Return every module below the folders, by name."""
    return tuple(_read(path) for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))


@cache
def _read(path: Path) -> Module:
    relative = path.relative_to(ROOT)
    parts = relative.with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    text = path.read_text(encoding="utf-8")
    return Module(name, relative, text, ast.parse(text, str(path)))


def functions_of(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function below a node, nested ones too."""
    return (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))
