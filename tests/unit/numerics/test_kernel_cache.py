"""The kernel cache: right code after any edit, in any mix of processes; hits where nothing changed.

Whole processes run a copy of the engine's lowest rooms with one module of kernels added.  The negative controls use
Numba's own cache in the same places and must go wrong.
"""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from strata.numerics import kernel_cache
from strata.numerics.cpu import kernel
from strata.numerics.kernel_cache import SymbolNumbers, cache_folder, forget_oldest, read_entry, write_entry

PACKAGE = Path(kernel_cache.__file__).parents[1]

HELPERS = """
import numpy as np
from strata.numerics.cpu import add, jit, mul

def make(factor):
    @jit
    def helper(x):
        total = x[0]
        for i in range(x.shape[0]):
            step = x[i]
            for j in range(9):
                step = add(mul(step, np.float32(factor)), x[(i + j) % x.shape[0]])
                if step > np.float32(100):
                    step = mul(step, np.float32(-0.5))
                elif step < np.float32(-100):
                    step = add(step, np.float32(250))
            total = add(total, step)
        return total
    return helper

helper_2, helper_3 = make(2), make(3)
"""

KERNELS = """
import itertools, os, sys
import numpy as np
from numba import njit
from numba.core.bytecode import FunctionIdentity
from strata.numerics.cpu import kernel
from strata.helpers import helper_2, helper_3, make

def build(factor):
    helper = make(factor)
    @kernel
    def closed(x):
        return helper(x) + helper(x[1:]) + helper(x[2:])
    return closed

@kernel
def ours_2(x): return helper_2(x) + helper_2(x[1:]) + helper_2(x[2:])
@kernel
def ours_3(x): return helper_3(x) + helper_3(x[1:]) + helper_3(x[2:])
@njit(cache=True)
def stock_2(x): return helper_2(x) + helper_2(x[1:]) + helper_2(x[2:])
@njit(cache=True)
def stock_3(x): return helper_3(x) + helper_3(x[1:]) + helper_3(x[2:])
closed_2, closed_3 = build(2), build(3)

def main():
    x = np.linspace(-1, 1, 12, dtype=np.float32)
    if "STOCK_NUMBERS" in os.environ:
        FunctionIdentity._unique_ids = itertools.count(1)
    for name in sys.argv[1:]:
        function = globals()[name]
        value = float(function(x)).hex()
        print(value, "hit" if function.stats.cache_hits else "miss")
"""


@pytest.fixture
def copy(tmp_path):
    """Return a folder with the lowest rooms of the package, helpers and kernels."""
    for room in ("numerics", "formats"):
        shutil.copytree(PACKAGE / room, tmp_path / "strata" / room, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in (("errors", (PACKAGE / "errors.py").read_text()), ("helpers", HELPERS), ("kernels", KERNELS)):
        (tmp_path / "strata" / f"{name}.py").write_text(text)
    (tmp_path / "strata/__init__.py").write_text("")
    return tmp_path


def run(copy: Path, *names: str, **environment: str) -> list[tuple[str, str]]:
    """Run kernels by name in a fresh process; return (value, "hit" or "miss") of each."""
    environment = {**os.environ, "STRATA_CACHE_DIR": str(copy / "ours"), "NUMBA_CACHE_DIR": str(copy / "stock"),
                   "PYTHONDONTWRITEBYTECODE": "1", **environment}
    command = [sys.executable, "-c", "from strata.kernels import main; main()", *names]
    ended = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return [tuple(line.split()) for line in ended.stdout.splitlines()]


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_an_edited_helper_in_another_file_is_compiled_again_where_stock_numba_runs_the_old_code(copy):
    before = run(copy, "ours_2", "closed_2", "stock_2")
    assert [how for _, how in before] == ["miss"] * 3 and len({value for value, _ in before}) == 1
    assert run(copy, "ours_2", "closed_2", "stock_2")[:2] == [(before[0][0], "hit")] * 2
    edit(copy / "strata/helpers.py", "np.float32(250)", "np.float32(251)")
    (ours, how), (closed, how_closed), (stock, how_stock) = run(copy, "ours_2", "closed_2", "stock_2")
    assert (how, how_closed, how_stock) == ("miss", "miss", "hit")
    assert ours == closed != before[0][0]
    assert stock == before[0][0]


def test_kernels_from_two_processes_keep_their_own_helpers_where_stock_numba_mixes_them_up(copy):
    (two, _), (two_closed, _) = run(copy, "ours_2", "closed_2")
    (three, _), (three_closed, _) = run(copy, "ours_3", "closed_3")
    assert two == two_closed != three == three_closed
    assert run(copy, "ours_2", "ours_3") == [(two, "hit"), (three, "hit")]
    assert run(copy, "closed_3", "closed_2") == [(three, "hit"), (two, "hit")]
    assert run(copy, "stock_2", STOCK_NUMBERS="1") == [(two, "miss")]
    assert run(copy, "stock_3", STOCK_NUMBERS="1") == [(three, "miss")]
    assert run(copy, "stock_2", "stock_3") == [(two, "hit"), (two, "hit")]


def test_edits_anywhere_in_numerics_count_and_unrelated_files_do_not(copy):
    value = run(copy, "closed_2")[0][0]
    (copy / "strata/unrelated.py").write_text("import strata.kernels\n")
    assert run(copy, "closed_2") == [(value, "hit")]
    (copy / "strata/numerics/new_room.py").write_text('"""Nothing yet."""\n')
    assert run(copy, "closed_2") == [(value, "miss")]


def test_another_cpu_or_other_compiler_settings_miss(copy):
    assert run(copy, "closed_2")[0][1] == "miss"
    for setting in ({"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}, {"NUMBA_OPT": "1"}):
        assert run(copy, "closed_2", **setting)[0][1] == "miss"
    assert run(copy, "closed_2")[0][1] == "hit"


def test_two_processes_may_compile_at_once(copy):
    names = ("closed_2", "closed_3", "ours_2")
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: run(copy, *names), range(2))
    assert [value for value, _ in one] == [value for value, _ in other]
    assert run(copy, *names) == [(value, "hit") for value, _ in one]
    assert {path.suffix for path in (copy / "ours/kernels").iterdir()} == {".kernel"}


def test_a_damaged_entry_is_compiled_again(copy):
    value = run(copy, "closed_2")[0][0]
    (entry,) = (copy / "ours/kernels").iterdir()
    whole = entry.read_bytes()
    entry.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    assert run(copy, "closed_2") == [(value, "miss")]
    assert run(copy, "closed_2") == [(value, "hit")]


def test_an_entry_that_lacks_bytes_or_has_other_ones_counts_as_absent(tmp_path):
    path = tmp_path / "new" / "entry"
    write_entry(path, b"some content")
    whole = path.read_bytes()
    assert read_entry(path) == b"some content"
    for damaged in (b"", whole[:31], whole[:-1], whole + b"x", bytes([whole[0] ^ 1]) + whole[1:]):
        path.write_bytes(damaged)
        assert read_entry(path) is None


@pytest.mark.parametrize("variables, expected", [
    ({"STRATA_CACHE_DIR": "/a", "NUMBA_CACHE_DIR": "/b", "XDG_CACHE_HOME": "/c"}, "/a/kernels"),
    ({"NUMBA_CACHE_DIR": "/b", "XDG_CACHE_HOME": "/c"}, "/b/kernels"),
    ({"XDG_CACHE_HOME": "/c"}, "/c/strata/kernels"),
    ({"HOME": "/d"}, "/d/.cache/strata/kernels"),
], ids=["ours", "numba's", "the user's", "the default"])
def test_the_folder_follows_the_environment(monkeypatch, variables, expected):
    for name in ("STRATA_CACHE_DIR", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(expected)


def test_a_folder_that_cannot_be_written_is_said_once_and_does_not_stop_the_kernel(monkeypatch, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STRATA_CACHE_DIR", str(tmp_path / "file"))

    @kernel
    def twice(x):
        return x + x

    assert (twice(3), twice(np.int32(4))) == (6, 8)
    assert len([record for record in caplog.records if "twice is not kept on disk" in record.getMessage()]) == 1


def test_a_kernel_that_closes_over_an_unknown_object_is_not_kept(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("STRATA_CACHE_DIR", str(tmp_path))
    unknown = object()

    def use(value=unknown):
        return 1

    @kernel
    def entry(x):
        return x

    entry._cache._function.__defaults__ = (use,)
    assert entry(1) == 1
    assert "cannot be part of a kernel's fingerprint" in caplog.text
    assert list(tmp_path.rglob("*.kernel")) == []


def test_what_was_used_longest_ago_goes_first(tmp_path):
    for age, name in enumerate(("newest", "middle", "oldest")):
        write_entry(tmp_path / name, bytes(68))
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    forget_oldest(tmp_path, 300)
    assert len(list(tmp_path.iterdir())) == 3
    assert read_entry(tmp_path / "oldest") == bytes(68)
    forget_oldest(tmp_path, 200)
    assert {path.name for path in tmp_path.iterdir()} == {"newest", "oldest"}
    assert read_entry(tmp_path / "middle") is None


def test_symbols_are_numbered_from_another_start_in_each_process():
    numbers = SymbolNumbers()
    first = next(numbers)
    assert [next(numbers) - first for _ in range(3)] == [1, 2, 3]
    assert abs(next(SymbolNumbers()) - first) > 1 << 24
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, str(next(numbers)).encode())
        os._exit(0)
    os.wait()
    assert abs(int(os.read(reading, 100)) - first) > 1 << 23
    os.close(reading)
    os.close(writing)
