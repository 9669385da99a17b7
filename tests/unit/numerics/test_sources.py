"""The source stamp: which files count, and that any edit of one shows."""

from pathlib import Path

import pytest

from strata.numerics.sources import PACKAGE_ROOT, source_files, source_stamp

MODULES = {
    "house/__init__.py": "",
    "house/kernels.py": "import house.plain\nfrom house import member\nfrom .near import x\nfrom house.deep.inner import f\n",
    "house/plain.py": "def late():\n    if True:\n        from house import hidden\n",
    "house/member.py": "try:\n    pass\nexcept ValueError:\n    import house.rare\n",
    "house/near.py": "from . import beside\nx = 1\n",
    "house/hidden.py": "import house.kernels\nimport numpy\n",
    "house/rare.py": "",
    "house/beside.py": "",
    "house/deep/__init__.py": "",
    "house/deep/inner.py": "from ..far import g\nf = 2\n",
    "house/far.py": "from strata.errors import StrataError\n",
    "house/unrelated.py": "import house.kernels\n",
}


def build_package(folder: Path, **edits: str) -> Path:
    for name, text in MODULES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + edits.get(path.stem, ""))
    return folder / "house/kernels.py"


def test_all_imported_modules_of_the_package_and_the_engine_count(tmp_path):
    found = source_files("house.kernels", build_package(tmp_path))
    mine = {path.relative_to(tmp_path).as_posix() for path in found if tmp_path in path.parents}
    assert mine == set(MODULES) - {"house/unrelated.py"}
    engine = {path.relative_to(PACKAGE_ROOT).as_posix() for path in found if PACKAGE_ROOT in path.parents}
    assert {"strata/errors.py", "strata/numerics/sources.py", "strata/formats/contract.py"} <= engine


@pytest.mark.parametrize("edited", sorted({Path(name).stem for name in MODULES} - {"unrelated", "__init__"}))
def test_an_edit_of_any_module_that_counts_changes_the_stamp(tmp_path, edited):
    before = source_stamp("house.kernels", build_package(tmp_path / "before"))
    after = source_stamp("house.kernels", build_package(tmp_path / "after", **{edited: "# edited\n"}))
    assert before != after


def test_an_equal_copy_and_an_edit_of_an_unrelated_module_keep_the_stamp(tmp_path):
    before = source_stamp("house.kernels", build_package(tmp_path / "before"))
    assert before == source_stamp("house.kernels", build_package(tmp_path / "copy"))
    assert before == source_stamp("house.kernels", build_package(tmp_path / "after", unrelated="# edited\n"))


def test_a_module_without_a_file_still_depends_on_numerics_and_formats(tmp_path):
    found = source_files("__main__", tmp_path / "nowhere.py")
    assert {path.parent.name for path in found} >= {"numerics", "formats"}
