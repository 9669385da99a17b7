"""`strata kernels`: refusals anywhere; the list and the folder where the compilers are installed."""

import pytest

from strata.cli.engine_flags import FIXTURE
from strata.cuda.card.compiling import why_no_compiler
from tests.cli.calls import refusal, strata

REASON = why_no_compiler()
needs_compiler = pytest.mark.skipif(REASON is not None, reason=str(REASON))


@pytest.mark.parametrize("text", ["9", "9.x", "sm_90", "9.0,", "6.1"])
def test_a_capability_that_is_none_or_too_old_is_refused(text):
    assert "capability=" in refusal("kernels", "--capability", text)


@pytest.mark.skipif(REASON is None, reason="the compilers are installed")
def test_without_compilers_it_says_what_to_install():
    assert "strata[cuda]" in refusal("kernels", "--capability", "9.0")


@needs_compiler
@pytest.mark.parametrize(("flag", "value"), [("--kv", "f8"), ("--context", "999999999"), ("--slots", "0"), ("--prefill", "-1")])
def test_other_bad_values_are_refused(flag, value):
    assert flag.removeprefix("--") in refusal("kernels", "--capability", "9.0", flag, value) or value in refusal("kernels", "--capability", "9.0", flag, value)


@needs_compiler
def test_the_list_says_what_is_missing(tmp_path):
    outcome = strata("kernels", "--model", FIXTURE, "--capability", "9.0", "--context", "512", "--folder", tmp_path, "--list")
    lines = outcome.out.splitlines()
    assert outcome.code == 0 and len(lines) > 90 and all(line.startswith("missing ") for line in lines)
    assert not list(tmp_path.iterdir())
