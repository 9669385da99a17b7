"""Acceptance of drafts: the longest prefix in which the target's own picks equal the drafts.

A window of a request holds the fed token and drafts d1 .. dk; row j's pick is the token after row j.  With a accepted
drafts, rows 0 .. a are kept, picks 0 .. a are emitted, and pick a is fed next.  Does not know: where drafts come from.
"""

from collections.abc import Sequence


def count_accepted(picks: Sequence[int], drafts: Sequence[int]) -> int:
    """Return the number of leading drafts that equal the picks before them."""
    for accepted, draft in enumerate(drafts):
        if picks[accepted] != draft:
            return accepted
    return len(drafts)
