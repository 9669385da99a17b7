"""How many drafts a verify window should carry, from what drafts were worth so far.  Reads no clock.

Unit of cost: a window of one row.  A further row costs `row`, a step of the draft layer `draft`: constants of an executor,
measured once.  A draft is worth its row while

    (probability that it and all drafts before it are accepted)  >=  pace * cost

where pace = tokens per cost of this conversation's windows so far, at least 1 (what decoding without drafts gives).  The
probability of one draft is the share accepted of its kind: draft-layer drafts by their probability (ten classes), suffix
drafts by the length of their match (four classes).  A step of the draft layer at some depth is worth computing while

    (probability that the drafts before are accepted) * (share accepted)  >=  pace * (draft + row * share taken)

with the shares of computed drafts at that depth.  Shares forget by a factor a sample and start from a prior.
The answer never depends on this, and the work depends on nothing but the conversation.  Does not know: tokens, executors.
"""

from collections.abc import Sequence

from strata.rows import WindowCosts

KEEP = 0.94
"""What a share keeps of the past with each sample: about the last 16 count."""
PRIOR_WEIGHT = 8.0
CLASS_PRIORS = tuple((i + 0.5) / 10 for i in range(10))
"""A draft-layer draft of probability q is accepted about q of the time."""
DEPTH_PRIORS = (0.65, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6)
TAKEN_PRIORS = (0.8,) * 7
MATCH_PRIORS = (0.6, 0.75, 0.85, 0.92)
PACE_KEEP = 0.9
EXPLORE_EVERY = 16
"""After so many windows in a row without drafts, one draft is tried again."""


class Shares:
    """Decayed shares of accepted drafts, by class."""

    def __init__(self, priors: Sequence[float]) -> None:
        self._accepted = [PRIOR_WEIGHT * prior for prior in priors]
        self._seen = [PRIOR_WEIGHT] * len(priors)

    def of(self, index: int) -> float:
        return self._accepted[index] / self._seen[index]

    def learn(self, index: int, accepted: bool) -> None:
        """Take one sample."""
        self._accepted[index] = KEEP * self._accepted[index] + accepted
        self._seen[index] = KEEP * self._seen[index] + 1.0


def probability_class(probability: float) -> int:
    """Return the class of a draft's probability; NaN falls into the lowest."""
    return min(9, int(probability * 10)) if probability >= 0 else 0


def match_class(length: int) -> int:
    """Return the class of a match's length: 3-4, 5-8, 9-16, 17 and more."""
    return (length > 4) + (length > 8) + (length > 16)


class WidthPolicy:
    """One conversation's policy; `is_full` takes every draft that fits and learns nothing."""

    def __init__(self, costs: WindowCosts, is_full: bool = False) -> None:
        self._costs, self._is_full = costs, is_full
        self._classes, self._matches = Shares(CLASS_PRIORS), Shares(MATCH_PRIORS)
        self._accepted, self._taken = Shares(DEPTH_PRIORS), Shares(TAKEN_PRIORS)
        self._tokens = self._spent = PRIOR_WEIGHT
        self._idle = 0

    @property
    def pace(self) -> float:
        """Tokens per cost, at least what decoding without drafts gives."""
        return max(1.0, self._tokens / self._spent)

    def wants_step(self, depth: int, path: float) -> bool:
        """Whether the draft layer's step number `depth` is worth computing; `path`: probability that it matters."""
        if self._is_full or (depth == 0 and self._idle >= EXPLORE_EVERY):
            return True
        cost = self._costs.draft + self._costs.row * self._taken.of(depth)
        return path * self._accepted.of(depth) >= self.pace * cost

    def step_share(self, probability: float) -> float:
        """Return how likely a draft-layer draft of this probability is accepted."""
        return self._classes.of(probability_class(probability))

    def takes(self, path: float) -> bool:
        """Whether a draft that is accepted with probability `path` is worth its row."""
        return self._is_full or path >= self.pace * self._costs.row

    def suffix_rows(self, length: int, first_share: float, most: int) -> int:
        """Return how many tokens behind a match of `length` to take; `first_share`: what is known of the first one."""
        share = self._matches.of(match_class(length))
        path, count = max(share, first_share), 0
        while count < most and self.takes(path):
            path, count = path * share, count + 1
        return count

    def learn_steps(self, probabilities: Sequence[float], n_taken: int, accepted: int) -> None:
        """Learn from the draft layer's drafts of one window, of which the first n_taken were verified."""
        for depth, probability in enumerate(probabilities[: n_taken + 1]):
            if depth > accepted:
                break
            self._accepted.learn(depth, depth < accepted)
            self._taken.learn(depth, depth < n_taken)
            if depth < n_taken:
                self._classes.learn(probability_class(probability), depth < accepted)

    def learn_suffix(self, length: int, n_taken: int, accepted: int) -> None:
        """Learn from the suffix drafts of one window."""
        for index in range(min(n_taken, accepted + 1)):
            self._matches.learn(match_class(length), index < accepted)

    def learn_window(self, n_rows: int, n_steps: int, n_tokens: int) -> None:
        """Learn what a window gave for its cost."""
        self._idle = 0 if n_rows > 1 or n_steps else self._idle + 1
        self._tokens = PACE_KEEP * self._tokens + n_tokens
        self._spent = PACE_KEEP * self._spent + 1.0 + self._costs.row * (n_rows - 1) + self._costs.draft * n_steps
