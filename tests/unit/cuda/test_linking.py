"""What the linker says of a kernel: its whole log, or, where it answers from a cache of its own, a line that tells less."""

import pytest

from strata.cuda.card import compiling
from strata.cuda.card.compiling import Resources, link

WHOLE = """ptxas info    : Function properties for run
    48 bytes stack frame, 44 bytes spill stores, 40 bytes spill loads
ptxas info    : Used 128 registers, used 1 barriers, 48 bytes cumulative stack size, 1024 bytes smem
"""
OF_A_CACHE = "info    : 24 bytes gmem\ninfo    : Function properties for 'run':\ninfo    : used 128 registers, used 1 barriers, 48 stack, 1024 bytes smem\n"
PTX = ".visible .entry run() { ret; }"


def linked_with(monkeypatch, *logs: str) -> list[str]:
    """Have the linker give these logs in turn; return the texts that it gets."""
    asked, answers = [], list(logs)
    monkeypatch.setattr(compiling, "_linked", lambda ptx, capability: (asked.append(ptx), (b"cubin", answers.pop(0)))[1])
    return asked


def test_a_whole_log_is_taken_at_once(monkeypatch):
    asked = linked_with(monkeypatch, WHOLE)
    assert link(PTX, (9, 0)) == (b"cubin", Resources(128, 48, 44, 40)) and asked == [PTX]


def test_an_answer_from_a_cache_is_asked_for_again_with_a_text_of_its_own(monkeypatch):
    both = []
    for _ in range(2):
        asked = linked_with(monkeypatch, OF_A_CACHE, WHOLE)
        assert link(PTX, (9, 0))[1] == Resources(128, 48, 44, 40)
        assert asked[0] == PTX and asked[1].startswith(f"{PTX}\n// ")
        both.append(asked[1])
    assert both[0] != both[1]


def test_a_log_that_tells_too_little_twice_is_an_error_that_shows_it(monkeypatch):
    linked_with(monkeypatch, OF_A_CACHE, OF_A_CACHE)
    with pytest.raises(ValueError, match="24 bytes gmem"):
        link(PTX, (9, 0))
