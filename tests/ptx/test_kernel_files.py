"""Kernels on disk: found where nothing changed, compiled where anything did, once per process, and whole."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import strata
from strata.cuda.card.compiling import why_no_compiler
from strata.errors import UsageError

REASON = why_no_compiler()
pytestmark = [pytest.mark.ptx, pytest.mark.skipif(REASON is not None, reason=str(REASON))]
CAPABILITY = (9, 0)
PACKAGE = Path(strata.__file__).parent
PRINT_KEYS = """
from strata.cuda.card.kernel_files import kept_name, ready_name
from strata.cuda.experts.combine import combine_kernel
from strata.cuda.machine.seam import target_of
from numba.cuda import types
floats = types.Array(types.float32, 1, "C")
kernel = combine_kernel(256, 4, target_of((9, 0)))
print(ready_name(kernel, (floats,), (9, 0)), kept_name(kernel, (floats,), (9, 0)))
"""


def scaled(factor, n_threads: int = 32):
    """A small kernel that closes over a number."""
    from numba import cuda

    from strata.cuda.machine.seam import kernel, mul

    @kernel(n_threads)
    def run(x, out):
        i = cuda.grid(1)
        out[i] = mul(x[i], factor)

    return run


def floats():
    from numba.cuda import types

    return (types.Array(types.float32, 1, "C"),) * 2


def files(ready=None, kept=None):
    from strata.cuda.card.kernel_files import KernelFiles

    return KernelFiles(ready, kept)


def forbid_compiling(monkeypatch) -> None:
    def compile_kernel(*arguments):
        raise AssertionError("a compiler was called")

    monkeypatch.setattr("strata.cuda.card.kernel_files.compile_kernel", compile_kernel)


def test_a_kept_kernel_is_read_and_not_compiled(tmp_path, monkeypatch):
    first = files(kept=tmp_path)
    made = first.get(scaled(np.float32(2)), floats(), CAPABILITY)
    assert made.cubin[:4] == b"\x7fELF" and made.entry.encode() in made.cubin and made.resources.registers > 0
    forbid_compiling(monkeypatch)
    second = files(kept=tmp_path)
    assert second.get(scaled(np.float32(2)), floats(), CAPABILITY) == made
    assert (first.n_compiled, second.n_compiled, second.n_kept, second.n_ready) == (1, 0, 1, 0)


def test_what_a_kernel_closes_over_its_bounds_types_and_capability_are_in_both_names():
    from numba.cuda import types

    from strata.cuda.card.kernel_files import kept_name, ready_name

    others = (types.Array(types.float32, 1, "C"), types.Array(types.float64, 1, "C"))
    kernels = [
        (scaled(np.float32(2)), floats(), CAPABILITY), (scaled(np.float32(3)), floats(), CAPABILITY), (scaled(np.float64(2)), floats(), CAPABILITY),
        (scaled(np.float32(2), 64), floats(), CAPABILITY), (scaled(np.float32(2)), others, CAPABILITY), (scaled(np.float32(2)), floats(), (8, 6)),
    ]
    for name_of in (ready_name, kept_name):
        assert len({name_of(*kernel) for kernel in kernels}) == len(kernels)
        assert name_of(*kernels[0]) == name_of(scaled(np.float32(2)), floats(), CAPABILITY)


def test_a_ready_name_tells_apart_whatever_the_live_functions_tell_apart():
    from strata.cuda.card.kernel_files import _live_part, _ready_part
    from strata.cuda.machine.seam import target_of
    from tests.ptx.catalogue import entries

    kernels = [entry.build(target_of(capability)) for entry in entries() for capability in ((7, 5), CAPABILITY)]
    pairs = {(_ready_part(kernel), _live_part(kernel)) for kernel in kernels}
    assert len(pairs) > 300
    assert len({ready for ready, _ in pairs}) == len({live for _, live in pairs}) == len(pairs)


def test_other_compilers_make_other_kept_names_and_the_same_ready_name(monkeypatch):
    from strata.cuda.card.kernel_files import kept_name, ready_name

    kernel = (scaled(np.float32(2)), floats(), CAPABILITY)
    before = ready_name(*kernel), kept_name(*kernel)
    monkeypatch.setattr("strata.cuda.card.kernel_files.compilers", lambda: ("another numba",))
    assert ready_name(*kernel) == before[0] and kept_name(*kernel) != before[1]


def test_an_option_that_depends_on_what_is_installed_is_in_the_kept_name_only():
    from strata.cuda.card.kernel_files import kept_name, ready_name

    names = []
    for lto in (True, False):
        kernel = scaled(np.float32(2))
        kernel.targetoptions["lto"] = lto
        names.append((ready_name(kernel, floats(), CAPABILITY), kept_name(kernel, floats(), CAPABILITY)))
    assert names[0][0] == names[1][0] and names[0][1] != names[1][1]


def test_without_a_linker_ready_kernels_are_loaded_and_others_left_to_numba(tmp_path, monkeypatch):
    from strata.cuda.card import kernel_files, loading
    from strata.cuda.card.building import KernelFolder

    card = SimpleNamespace(capability=CAPABILITY)
    KernelFolder(tmp_path, True, CAPABILITY).compile((scaled(np.float32(2)), floats()))
    forbid_compiling(monkeypatch)
    missing = lambda: "no linker"  # noqa: E731
    monkeypatch.setenv("STRATA_CUDA_KERNELS", str(tmp_path))
    for module in (kernel_files, loading):
        monkeypatch.setattr(module, "why_no_compiler", missing)
    monkeypatch.setattr(loading, "kernel_files", kernel_files.kernel_files.__wrapped__)
    monkeypatch.setattr(loading, "_why_numba_compiles", missing)
    monkeypatch.setattr(loading, "_function_of", lambda cubin, entry: ("loaded", cubin[:4]))
    monkeypatch.setattr(loading, "_numbas_own", lambda dispatcher, types: ("Numba's own", types))
    load = loading.load_function.__wrapped__
    assert load(card, scaled(np.float32(2)), floats()) == ("loaded", b"\x7fELF")
    assert load(card, scaled(np.float32(3)), floats()) == ("Numba's own", floats())


def test_a_ready_kernel_is_read_and_its_folder_left_alone(tmp_path, monkeypatch):
    from strata.cuda.card.compiling import compile_kernel
    from strata.cuda.card.kernel_files import pack, ready_name
    from strata.numerics.entries import write_entry

    ready, kept = tmp_path / "ready", tmp_path / "kept"
    kernel = (scaled(np.float32(2)), floats(), CAPABILITY)
    made = compile_kernel(*kernel)
    write_entry(ready / ready_name(*kernel), pack(made, *kernel[1:]))
    found = files(ready, kept)
    assert found.get(*kernel) == made and (found.n_ready, found.n_compiled) == (1, 0)
    other = (scaled(np.float32(3)), floats(), CAPABILITY)
    found.get(*other)
    assert found.n_compiled == 1 and len(list(ready.iterdir())) == 1 and len(list(kept.iterdir())) == 1


def test_a_damaged_file_is_compiled_again_and_mended(tmp_path, caplog):
    made = files(kept=tmp_path).get(scaled(np.float32(2)), floats(), CAPABILITY)
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    again = files(kept=tmp_path)
    assert again.get(scaled(np.float32(2)), floats(), CAPABILITY).cubin[:4] == made.cubin[:4]
    assert again.n_compiled == 1 and "damaged" in caplog.text
    assert files(kept=tmp_path).find(scaled(np.float32(2)), floats(), CAPABILITY) is not None


def test_a_file_of_another_kernel_is_not_taken(tmp_path):
    from strata.cuda.card.kernel_files import kept_name

    kept = files(kept=tmp_path)
    kept.get(scaled(np.float32(2)), floats(), CAPABILITY)
    (path,) = tmp_path.iterdir()
    shutil.copy(path, tmp_path / kept_name(scaled(np.float32(2)), floats(), (8, 6)))
    assert kept.find(scaled(np.float32(2)), floats(), (8, 6)) is None


def test_threads_that_ask_at_once_compile_once(tmp_path):
    shared = files(kept=tmp_path)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: shared.get(scaled(np.float32(5)), floats(), CAPABILITY), range(4)))
    assert shared.n_compiled == 1 and len({kernel.cubin for kernel in found}) == 1


def test_a_kernel_without_a_stable_key_is_compiled_and_says_so_once(tmp_path, caplog):
    strange = object()
    kept = files(kept=tmp_path)
    for _ in range(2):
        kernel = scaled(np.float32(2))
        kernel.py_func.__kwdefaults__ = {"strange": strange}
        from strata.cuda.card.kernel_files import _ready_part

        with pytest.raises(TypeError):
            _ready_part(kernel)
        assert kept.find(kernel, floats(), CAPABILITY) is None
    assert caplog.text.count("not kept on disk") == 1


def names_in_a_process(root: Path) -> list[str]:
    """Both names of one kernel, from a process of its own that runs the engine below `root`."""
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONHASHSEED": "random"}
    result = subprocess.run([sys.executable, "-c", PRINT_KEYS], capture_output=True, text=True, cwd=root, env=environment, check=True)
    return result.stdout.split()


def test_names_are_equal_in_every_process_and_change_with_the_sources(tmp_path):
    copy = tmp_path / "copy"
    for room in ("numerics", "formats", "cuda", "model"):
        shutil.copytree(PACKAGE / room, copy / "strata" / room, ignore=shutil.ignore_patterns("__pycache__"))
    for file in PACKAGE.glob("*.py"):
        shutil.copy(file, copy / "strata" / file.name)
    here = names_in_a_process(PACKAGE.parent)
    assert names_in_a_process(copy) == here
    (copy / "strata/cuda/unrelated.py").write_text("import strata.cuda.experts.combine\n")
    assert names_in_a_process(copy) == here
    with (copy / "strata/cuda/machine/seam.py").open("a") as file:
        file.write("# edited\n")
    edited = names_in_a_process(copy)
    assert edited[0] != here[0] and edited[1] != here[1]


def test_a_ready_folder_that_is_not_there_is_refused(monkeypatch, tmp_path):
    from strata.cuda.card.kernel_files import ready_folder

    monkeypatch.setenv("STRATA_CUDA_KERNELS", str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="no such folder"):
        ready_folder()
