"""Comparison finds every kind of difference, names the first one of each request, and counts what it compared."""

from dataclasses import replace

import pytest

from harness.comparison import compare
from tests.unit.harness.fakes import answer

SAME = answer([5, 6, 7])


def only(left, right):
    """The one difference between two answers."""
    comparison = compare([left], [right], ["chat-0"])
    assert not comparison.is_exact
    (difference,) = comparison.differences
    return difference


def test_equal_answers_are_exact_and_every_row_is_counted():
    comparison = compare([SAME, answer([8])], [answer([5, 6, 7]), answer([8])], ["a", "b"])
    assert comparison.is_exact
    assert (comparison.n_tokens, comparison.n_rows, comparison.n_rows_equal) == (4, 4, 4)


def test_equal_tokens_with_other_bits_differ_at_the_first_such_row():
    difference = only(SAME, answer([5, 6, 7], ["d5", "x", "y"]))
    assert (difference.kind, difference.row.index, difference.row.position, difference.token) == ("logits", 1, 10, None)
    assert (difference.row.left.digest, difference.row.right.digest) == ("d6", "x")


def test_equal_rows_of_which_other_log_probabilities_are_told_differ():
    told = [replace(SAME, emitted=(replace(SAME.emitted[0], logprob=value, alternatives=((5, value),)), *SAME.emitted[1:])) for value in (-0.5, -0.25)]
    assert only(*told).kind == "logprobs"
    assert compare(told[:1], told[:1], ["chat-0"]).is_exact


def test_rows_behind_other_bits_are_still_compared_while_tokens_are_equal():
    comparison = compare([SAME], [answer([5, 6, 7], ["x", "d6", "d7"])], ["a"])
    assert (comparison.n_rows, comparison.n_rows_equal) == (3, 2)


def test_another_token_is_named_with_its_margins_and_ends_the_comparison():
    left, right = answer([5, 6, 7], margin=0.25), answer([5, 9, 7], margin=0.125)
    comparison = compare([left], [right], ["chat-0"])
    (difference,) = comparison.differences
    assert (difference.kind, difference.request, difference.label) == ("token", 0, "chat-0")
    assert (difference.token.index, difference.token.left.token, difference.token.right.token) == (1, 6, 9)
    assert (difference.token.left.margin, difference.token.right.margin) == (0.25, 0.125)
    assert (comparison.n_tokens, comparison.n_rows_equal) == (2, 1)


def test_the_first_row_and_the_first_token_that_differ_are_told_apart():
    difference = only(SAME, answer([5, 6, 8], ["d5", "x", "d8"]))
    assert (difference.kind, difference.row.index, difference.token.index) == ("token", 1, 2)


def test_another_token_with_equal_bits_is_a_difference_too():
    difference = only(SAME, answer([5, 9, 7], ["d5", "d6", "d7"]))
    assert (difference.kind, difference.token.index) == ("token", 1)


def test_a_shorter_answer_differs_in_length():
    difference = only(SAME, answer([5, 6]))
    assert (difference.kind, difference.detail, difference.row) == ("length", "3 tokens against 2", None)


def test_another_ending_differs_although_all_rows_are_equal():
    difference = only(SAME, answer([5, 6], finish="error", error="not finite"))
    assert difference.kind == "finish"
    assert "not finite" in difference.detail


def test_only_the_requests_that_differ_are_named():
    comparison = compare([SAME, SAME, SAME], [SAME, answer([5, 6, 9]), SAME], ["a", "b", "c"])
    assert [(d.request, d.label) for d in comparison.differences] == [(1, "b")]


def test_different_numbers_of_answers_cannot_be_compared():
    with pytest.raises(ValueError, match="zip"):
        compare([SAME], [SAME, SAME], ["a"])
