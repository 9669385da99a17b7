"""Suffix drafts: the text's own earlier passages as guesses of how it goes on.

The last tokens of the history are looked up by their trigram among its 16 most recent earlier occurrences; each match is
extended backwards to 32 tokens at most; the longest wins, ties to the most recent.  What followed it is proposed; a match
that reaches the end of the history goes on with the proposal's own tokens, as a repetition does.
Memory: one position per token at most, 16 per trigram, one history.  Pure Python, no clock.  Does not know: windows, other sources.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

TRIGRAM = 3
MOST_OCCURRENCES = 16
LONGEST_MATCH = 32


@dataclass(frozen=True, slots=True)
class Match:
    """An earlier passage: `end`, the position behind it, and how many tokens match."""

    end: int
    length: int


class SuffixIndex:
    """The history of one conversation and where its trigrams occurred; `shortest` tokens must match (3 .. 32)."""

    def __init__(self, shortest: int, tokens: Iterable[int] = ()) -> None:
        self.shortest = shortest
        self.tokens: list[int] = []
        self._ends: dict[tuple[int, int, int], deque[int]] = {}
        self.extend(tokens)

    def extend(self, tokens: Iterable[int]) -> None:
        """Add tokens to the history."""
        for token in tokens:
            if len(self.tokens) >= TRIGRAM:
                # The trigram that ends here becomes an earlier occurrence once something follows it.
                ends = self._ends.setdefault(tuple(self.tokens[-TRIGRAM:]), deque(maxlen=MOST_OCCURRENCES))
                ends.append(len(self.tokens))
            self.tokens.append(token)

    def match(self) -> Match | None:
        """Return the longest earlier match of the history's end, or None where none is long enough."""
        best = None
        for end in reversed(self._ends.get(tuple(self.tokens[-TRIGRAM:]), ())):
            length = self._length(end)
            if length >= self.shortest and (best is None or length > best.length):
                best = Match(end, length)
        return best

    def proposal(self, match: Match, count: int) -> tuple[int, ...]:
        """Return `count` tokens that followed a match."""
        period = len(self.tokens) - match.end
        return tuple(self.tokens[match.end + i % period] for i in range(count))

    def _length(self, end: int) -> int:
        last = len(self.tokens)
        for length in range(TRIGRAM, LONGEST_MATCH):
            if length >= end or self.tokens[end - 1 - length] != self.tokens[last - 1 - length]:
                return length
        return LONGEST_MATCH
