"""What the gguf library knows by itself, and what is added to it."""

import subprocess
import sys
from pathlib import Path

import gguf
import pytest

from strata.errors import ModelFileError
from strata.formats.gguf_types import register_missing_types

FIXTURE = Path(__file__).parents[3] / "fixtures" / "strata-mini-mix" / "strata-mini-mix-mtp.gguf"


def in_a_fresh_interpreter(*lines: str) -> str:
    run = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_gguf_itself_does_not_know_type_42_yet():
    known = in_a_fresh_interpreter("import gguf", "print(42 in [int(kind) for kind in gguf.GGMLQuantizationType])")
    assert known == "False", "gguf knows type 42 now: compare its layout with q2_0.py, then delete gguf_types.py"


def test_gguf_cannot_open_the_fixture_before_the_type_is_added_and_can_afterwards():
    outcome = in_a_fresh_interpreter(
        "import gguf",
        "try:",
        f"    gguf.GGUFReader({str(FIXTURE)!r})",
        "except ValueError:",
        "    print('refused')",
        "import strata.formats.gguf_types",
        f"print(len(gguf.GGUFReader({str(FIXTURE)!r}).tensors))",
    )
    assert outcome.split() == ["refused", "29"]


def test_the_member_behaves_like_gguf_s_own():
    register_missing_types()
    kind = gguf.GGMLQuantizationType(42)
    assert kind is gguf.GGMLQuantizationType.Q2_0 is gguf.GGMLQuantizationType["Q2_0"]
    assert (kind.name, kind.value, int(kind)) == ("Q2_0", 42, 42)
    assert kind in list(gguf.GGMLQuantizationType)
    assert gguf.GGML_QUANT_SIZES[kind] == (64, 18)


def test_adding_the_type_again_changes_nothing():
    register_missing_types()
    before = list(gguf.GGMLQuantizationType)
    assert register_missing_types() is False
    assert list(gguf.GGMLQuantizationType) == before


def test_another_layout_under_the_same_id_is_refused(monkeypatch):
    register_missing_types()
    monkeypatch.setitem(gguf.GGML_QUANT_SIZES, gguf.GGMLQuantizationType(42), (32, 10))
    with pytest.raises(ModelFileError, match=r"\(32, 10\)"):
        register_missing_types()
