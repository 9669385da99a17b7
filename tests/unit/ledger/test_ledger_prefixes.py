"""Prefix hashes: equal for equal conversations however they were cut into windows, different for everything else."""

import numpy as np

from harness.ledger.prefixes import ancestors, chain, parents
from strata.rows import Segment, Window


def prefixes(*windows: Window) -> list[int]:
    """The prefix hash of every row, window after window."""
    requests = [np.repeat(np.array([s.request for s in w.segments], np.int32), w.count) for w in windows]
    parent = parents(windows, requests)
    out = np.empty(len(parent), np.uint64)
    chain(np.concatenate([w.tokens for w in windows]), parent, np.concatenate(requests), out)
    return out.tolist()


def window(*segments: Segment, keep: bool = True) -> Window:
    return Window.of(segments, keep)


WHOLE = prefixes(window(Segment(0, 0, (5, 6, 7, 8), request=1)))


def test_a_conversation_has_the_same_hashes_in_any_windows():
    alone = [window(Segment(3, i, (token,), request=1)) for i, token in enumerate((5, 6, 7, 8))]
    assert prefixes(*alone) == WHOLE
    assert prefixes(window(Segment(0, 0, (5, 6, 7), request=1)), window(Segment(0, 3, (8,), request=1))) == WHOLE


def test_neighbours_change_nothing():
    together = prefixes(
        window(Segment(0, 0, (9, 9), request=0), Segment(1, 0, (5, 6), request=1)),
        window(Segment(1, 2, (7, 8), request=1), Segment(0, 2, (9,), request=0)),
    )
    assert [*together[2:4], *together[4:6]] == WHOLE


def test_another_token_request_or_order_is_another_prefix():
    others = [
        *prefixes(window(Segment(0, 0, (5, 6, 7, 8), request=2))),
        *prefixes(window(Segment(0, 0, (6, 5, 7, 8), request=1)))[1:],
        *prefixes(window(Segment(0, 0, (1, 5, 6, 7), request=1))),
    ]
    assert not set(WHOLE) & set(others)


def test_rejected_drafts_share_no_hash_with_the_tokens_that_follow():
    verify = window(Segment(0, 2, (7, 50, 51), request=1), keep=False)
    after = window(Segment(0, 3, (8, 60), request=1), keep=False)
    got = prefixes(window(Segment(0, 0, (5, 6), request=1)), verify, after)
    assert [*got[:3], got[5]] == WHOLE
    assert not set(got[3:5]) & {*WHOLE, got[6]}


def test_a_request_number_that_comes_again_starts_anew():
    first, again = window(Segment(0, 0, (5, 6), request=1)), window(Segment(0, 0, (5, 6, 7, 8), request=1))
    assert prefixes(first, again)[2:] == WHOLE


def test_ancestors_are_the_rows_before_in_the_conversation():
    windows = [window(Segment(0, 0, (5, 6), request=1), Segment(1, 0, (9,), request=0)), window(Segment(0, 2, (7,), request=1))]
    requests = [np.array([1, 1, 0], np.int32), np.array([1], np.int32)]
    parent = parents(windows, requests)
    assert parent.tolist() == [-1, 0, -1, 1]
    assert ancestors(np.array([3, 3, 3, 3, 2]), np.array([0, 1, 2, 3, 1]), parent).tolist() == [3, 1, 0, -1, -1]
