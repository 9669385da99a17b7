"""Suffix drafts against a search that looks at everything, and their bounds."""

import random

import pytest

from strata.windows.suffix import LONGEST_MATCH, MOST_OCCURRENCES, TRIGRAM, Match, SuffixIndex

SEED = 1


def by_searching(text: list[int], shortest: int) -> Match | None:
    n, best = len(text), None
    ends = [end for end in range(TRIGRAM, n) if text[end - TRIGRAM : end] == text[n - TRIGRAM :]][-MOST_OCCURRENCES:]
    for end in reversed(ends):
        length = 0
        while length < LONGEST_MATCH and end > length and text[end - 1 - length] == text[n - 1 - length]:
            length += 1
        if length >= shortest and (best is None or length > best.length):
            best = Match(end, length)
    return best


@pytest.mark.parametrize("n_tokens", [1, 2, 3, 7])
def test_the_match_is_the_longest_of_the_latest_sixteen(n_tokens):
    draw, found = random.Random(SEED + n_tokens), 0
    for _ in range(300):
        text = [draw.randrange(n_tokens) for _ in range(draw.randrange(120))]
        shortest = draw.choice([3, 3, 3, 4, 9, 32])
        match = SuffixIndex(shortest, text).match()
        assert match == by_searching(text, shortest)
        found += match is not None
    assert found > 10


def test_equal_lengths_go_to_the_most_recent():
    assert SuffixIndex(3, [7, 1, 2, 3, 8, 1, 2, 3, 9, 1, 2, 3]).match() == Match(8, 3)


def test_a_longer_match_beats_a_later_one():
    assert SuffixIndex(3, [5, 1, 2, 3, 8, 1, 2, 3, 5, 1, 2, 3]).match() == Match(4, 4)


def test_a_match_ends_at_32_tokens():
    passage = list(range(50))
    assert SuffixIndex(3, [*passage, 99, *passage]).match() == Match(50, LONGEST_MATCH)


def test_a_proposal_goes_on_with_itself_at_the_end():
    index = SuffixIndex(3, [1, 2, 3, 4, 1, 2, 3])
    assert index.proposal(index.match(), 6) == (4, 1, 2, 3, 4, 1)


@pytest.mark.parametrize("text", [[], [1], [1, 2], [1, 2, 3], [1, 2, 3, 4]])
def test_short_histories_have_no_match(text):
    assert SuffixIndex(3, text).match() is None


def test_growing_token_by_token_equals_growing_at_once():
    text = [random.Random(SEED).randrange(3) for _ in range(200)]
    slow = SuffixIndex(3)
    for token in text:
        slow.extend([token])
    assert slow.match() == SuffixIndex(3, text).match()


def test_memory_is_one_position_a_token_at_most():
    index = SuffixIndex(3, [0] * 5000)
    assert sum(map(len, index._ends.values())) <= MOST_OCCURRENCES
    varied = SuffixIndex(3, [random.Random(SEED + i).randrange(4000) for i in range(5000)])
    assert sum(map(len, varied._ends.values())) <= 5000
