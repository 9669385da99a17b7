"""The choice of instructions, and programs compiled for other CPUs than this one."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from strata.cpu_pool.instruction_sets import PLAIN, byte_products, compiled_features, instruction_set, sets_for
from strata.errors import UsageError
from tests.unit.cpu_pool.row_cases import ALL, EVERY_WAY, SETS

PROJECT = Path(__file__).resolve().parents[3]
HASWELL = "+avx2,+fma,+f16c,+avx,+bmi,+bmi2,+sse4.2,+ssse3,+sse4.1,+popcnt,+lzcnt"
OLD = "+sse2,+sse4.1,+avx,+f16c"
"""Neither AVX2 nor fused multiply-adds; half-precision numbers need F16C (numerics.cpu)."""
needs_avx2 = pytest.mark.skipif(not SETS, reason="this CPU has no AVX2: only the plain loops can run")


@cache
def digests_for(cpu: str, features: str, names: tuple[str, ...], *arguments: str) -> list[str]:
    """What `row_digests` prints when Numba compiles for a CPU; the empty name is this one."""
    choice = {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": features} if cpu else {}
    command = [sys.executable, "-m", "tests.unit.cpu_pool.row_digests", ",".join(names), *arguments]
    done = subprocess.run(command, cwd=PROJECT, env={**os.environ, **choice}, capture_output=True, text=True)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-2000:]}"
    return done.stdout.splitlines()


@pytest.mark.slow
@needs_avx2
def test_programs_for_a_haswell_and_for_an_older_cpu_compute_the_bits_of_this_cpu():
    here, haswell, old = digests_for("", "", EVERY_WAY), digests_for("haswell", HASWELL, EVERY_WAY), digests_for("x86-64", OLD, EVERY_WAY)
    assert (haswell[0], old[0]) == ("avx2", PLAIN)
    assert here[0] == instruction_set()
    assert here[1:] == haswell[1:] == old[1:]
    assert len(set(here[1:])) == len(EVERY_WAY)


SOME = ("Q4_0", "Q8_0", "Q4_K", "IQ2_XS")
"""Formats that stand for the others where programs of their own are compiled."""
VNNI_ASSEMBLY = """
from numba import types
from strata.cpu_pool.instruction_sets import instruction_set
from strata.cpu_pool.row_products import expert_rows
from strata.formats.table import by_name

address, pair, triple = types.int64, types.UniTuple(types.int64, 2), types.UniTuple(types.int64, 3)
rows = expert_rows(by_name("IQ4_NL").type_id, instruction_set())
rows.compile((address, address, pair, triple, pair, pair, address))
print(instruction_set(), *rows.inspect_asm().values())
"""


@needs_avx2
def test_programs_for_avx_vnni_alone_use_its_instruction_and_no_wider_register():
    choice = {"NUMBA_CPU_NAME": "alderlake", "NUMBA_CPU_FEATURES": HASWELL + ",+avxvnni"}
    command = [sys.executable, "-c", VNNI_ASSEMBLY]
    done = subprocess.run(command, cwd=PROJECT, env={**os.environ, **choice}, capture_output=True, text=True)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-2000:]}"
    name, assembly = done.stdout.split(maxsplit=1)
    assert name == "vnni"
    assert assembly.count("{vex}\tvpdpbusd") == assembly.count("vpdpbusd") > 100
    assert "zmm" not in assembly and "vpmaddubsw" not in assembly


@needs_avx2
@pytest.mark.parametrize("names", [SOME, pytest.param(tuple(form.name for form in ALL if form.name not in SOME), marks=pytest.mark.slow)], ids=["some", "others"])
def test_nothing_is_read_behind_the_last_weight(names):
    assert digests_for("", "", names, "at-the-edge") == digests_for("", "", names)


@pytest.mark.parametrize(
    "features, names",
    [
        ({"avx2", "fma", "f16c", "avx512f", "avx512vnni", "avx512vl", "avxvnni"}, ("avx512", "vnni", "avx2", PLAIN)),
        ({"avx2", "fma", "f16c", "avx512f", "avx512vnni", "avx512vl"}, ("avx512", "avx2", PLAIN)),
        ({"avx2", "fma", "f16c", "avxvnni"}, ("vnni", "avx2", PLAIN)),
        ({"avx2", "fma", "f16c", "avx512f", "avx512vnni"}, ("avx2", PLAIN)),
        ({"avx2", "fma"}, (PLAIN,)),
        ({"avx", "sse4.2"}, (PLAIN,)),
        ({"neon"}, (PLAIN,)),
        (set(), (PLAIN,)),
    ],
)
def test_a_set_needs_all_its_features(features, names):
    assert sets_for(frozenset(features)) == names


def test_the_choice_is_the_best_of_what_numba_compiles_for():
    assert instruction_set() == sets_for(compiled_features())[0]


def test_a_set_without_byte_products_is_refused():
    with pytest.raises(UsageError, match="instructions=plain: there are no byte products for it"):
        byte_products(PLAIN)
