"""Which source files a kernel's machine code comes from, and one stamp over their contents.

The files are: the one that defines the kernel, every module of the same package and of this engine that it imports,
directly or through others, and everything in `numerics` and `formats`.  Imports are read from the syntax tree, wherever
in a file they stand; nothing is executed.  A file is read once in a process, when the first kernel that needs it is
defined, which is as close to its import as can be.  Does not know: functions; modules that are imported by a computed
name (the fingerprint of the live functions covers what kernels take from those).
"""

import ast
import hashlib
from functools import cache
from pathlib import Path

PACKAGE = __name__.partition(".")[0]
PACKAGE_ROOT = Path(__file__).resolve().parents[2]
ALWAYS = ("numerics", "formats")


@cache
def read_source(path: Path) -> tuple[str, tuple[tuple[str, int, tuple[str, ...]], ...]]:
    """Return the SHA-256 of a Python file and its imports: (module, level of a relative import, imported names)."""
    content = path.read_bytes()
    imports = []
    pending = [ast.parse(content)]
    while pending:
        for child in ast.iter_child_nodes(pending.pop()):
            if isinstance(child, ast.Import):
                imports += [(alias.name, 0, ()) for alias in child.names]
            elif isinstance(child, ast.ImportFrom):
                imports.append((child.module or "", child.level, tuple(alias.name for alias in child.names)))
            elif isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
                pending.append(child)
    return hashlib.sha256(content).hexdigest(), tuple(imports)


def find_module(name: str, roots: tuple[Path, ...]) -> Path | None:
    """Return the file of a module by its full dotted name below one of the roots."""
    for root in roots:
        base = root.joinpath(*name.split("."))
        for path in (base.with_name(base.name + ".py"), base / "__init__.py"):
            if path.is_file():
                return path
    return None


def imported_names(module: str, path: Path) -> set[str]:
    """Return the dotted names that a module may import, with all packages around them; some may be no modules."""
    names = set()
    for target, level, members in read_source(path)[1]:
        if level:
            n_up = level - (path.name == "__init__.py")
            around = module.split(".")[:len(module.split(".")) - n_up]
            target = ".".join([*around, target] if target else around)
        names.update({target, *(f"{target}.{member}" for member in members)})
    for name in tuple(names):
        parts = name.split(".")
        names.update(".".join(parts[:n]) for n in range(1, len(parts)))
    return names


def search_roots(module: str, path: Path) -> tuple[Path, ...]:
    """Return the folders that dotted names start from: the module's own, where its name tells, and the engine's."""
    if module == "__main__":
        return (PACKAGE_ROOT,)
    return path.parents[module.count(".") + (path.name == "__init__.py")], PACKAGE_ROOT


def name_of(file: Path, roots: tuple[Path, ...]) -> str:
    """Return a file's path below the root that it was found in, so that a copy elsewhere has the same name."""
    for root in roots:
        if file.is_relative_to(root):
            return file.relative_to(root).as_posix()
    return file.name


def source_files(module: str, path: Path) -> dict[Path, str]:
    """Return the files that a kernel defined in `module` is made from, with the SHA-256 of each.

    `path` is the module's file; nothing of it counts where it does not exist.
    """
    packages = {PACKAGE, module.partition(".")[0]}
    roots = search_roots(module, path)
    found = {}
    pending = [(module, path)] if path.is_file() else []
    while pending:
        name, file = pending.pop()
        if file in found:
            continue
        found[file] = read_source(file)[0]
        for imported in imported_names(name, file):
            if imported.partition(".")[0] in packages and (target := find_module(imported, roots)):
                pending.append((imported, target))
    for folder in ALWAYS:
        for file in (PACKAGE_ROOT / PACKAGE / folder).rglob("*.py"):
            found.setdefault(file, read_source(file)[0])
    return found


@cache
def source_stamp(module: str, path: Path) -> str:
    """Return the SHA-256 (hexadecimal) over names and contents of the files that `module`'s kernels are made from.

    Raises OSError where a file cannot be read and SyntaxError where one cannot be parsed.
    """
    path = path.resolve()
    files = source_files(module, path)
    lines = sorted(f"{name_of(file, search_roots(module, path))} {digest}" for file, digest in files.items())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
