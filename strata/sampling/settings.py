"""How a request's tokens are chosen: the keys of a request, checked once.

Names, order and defaults are those of the line protocol.  The defaults choose greedily and change nothing.
Does not know: logits, where the keys came from.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from strata.errors import RequestError
from strata.sampling.philox import LARGEST_SEED

MOST_CANDIDATES = 64
"""Tokens that a draw chooses among at most; also the most alternatives that log probabilities are given for."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Keys of one request; raises RequestError naming the key that makes no sense.

    temperature     0: the largest logit; else a draw.       top_k   1..64; 0 or more than 64 means 64
    top_p           1 or more keeps all                      min_p   0 keeps all; at most 1
    seed            1 .. 2^64-1; 0: taken from the clock and told in the answer
    penalty_last_n  tokens that penalties look back on;      penalty_repeat, _freq, _present: 1, 0, 0 change nothing
    logprobs        alternatives to report with each token; -1: none, and no log probability either
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    penalty_last_n: int = 64
    penalty_repeat: float = 1.0
    penalty_freq: float = 0.0
    penalty_present: float = 0.0
    logprobs: int = -1

    def __post_init__(self) -> None:
        for name in ("temperature", "top_p", "min_p", "penalty_repeat", "penalty_freq", "penalty_present"):
            _require(math.isfinite(getattr(self, name)), self, name, "it is not a finite number")
        _require(self.temperature >= 0, self, "temperature", "it is negative")
        _require(self.top_p >= 0, self, "top_p", "it is negative")
        _require(0 <= self.min_p <= 1, self, "min_p", "it is not between 0 and 1")
        _require(self.top_k >= 0, self, "top_k", "it is negative")
        _require(0 <= self.seed <= LARGEST_SEED, self, "seed", "it is not between 0 and 2^64-1")
        _require(self.penalty_last_n >= 0, self, "penalty_last_n", "it is negative")
        _require(self.penalty_repeat > 0, self, "penalty_repeat", "it is not above 0")
        _require(-1 <= self.logprobs <= MOST_CANDIDATES, self, "logprobs", f"it is not between -1 and {MOST_CANDIDATES}")

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0

    @property
    def has_penalties(self) -> bool:
        neutral = self.penalty_repeat == 1 and self.penalty_freq == 0 and self.penalty_present == 0
        return self.penalty_last_n > 0 and not neutral

    @property
    def n_candidates(self) -> int:
        """Candidates that top_k leaves."""
        return self.top_k if 1 <= self.top_k <= MOST_CANDIDATES else MOST_CANDIDATES

    def seeded(self, clock_ns: int, number: int) -> "Sampling":
        """Return these keys with a seed: a draw without one gets one from the clock, apart for requests of one instant."""
        if self.is_greedy or self.seed:
            return self
        return replace(self, seed=(clock_ns + number * 0x9E3779B97F4A7C15) & LARGEST_SEED or 1)


def _require(holds: bool, sampling: Sampling, name: str, why: str) -> None:
    if not holds:
        raise RequestError(f"{name}={getattr(sampling, name)}", why, "leave it out for the default, or see the request keys")


def from_keys(keys: Mapping[str, str]) -> Sampling:
    """Read the sampling keys among a request's `name=value` texts; others are left alone.  Raises RequestError."""
    chosen = {}
    for field in fields(Sampling):
        if field.name in keys:
            kind = type(field.default)
            try:
                chosen[field.name] = kind(keys[field.name])
            except ValueError:
                wanted = "a whole number" if kind is int else "a number"
                raise RequestError(f"{field.name}={keys[field.name]}", f"it is not {wanted}", "correct it or leave it out") from None
    return Sampling(**chosen)
