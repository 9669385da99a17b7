"""What a conversation proposes for its next window, and where it came from.

A window's drafts have one source: `mtp` (the draft layer), `suffix` (the text's own past), or `given` (the request's own).
Does not know: how drafts are made.
"""

from dataclasses import dataclass

SOURCES = ("mtp", "suffix", "given")


@dataclass(frozen=True, slots=True)
class Proposal:
    """Drafts for the rows behind the fed token.

    `probabilities` has one entry per step of the draft layer that was computed, taken or not; `match_length` is the length
    of a suffix's match.
    """

    tokens: tuple[int, ...] = ()
    source: str = ""
    probabilities: tuple[float, ...] = ()
    match_length: int = 0


NOTHING = Proposal()
