"""Choosing the token of one row: a pure function of its logits, its history, the request's keys and its position.

Nothing is carried from row to row, so a row gives the same token as a decode row, as any row of a verify window, and in any
company.  Does not know: windows, slots, drafts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from strata.sampling.candidates import best_candidates, log_of_total
from strata.sampling.chain import draw
from strata.sampling.penalties import penalised
from strata.sampling.philox import uniform
from strata.sampling.settings import Sampling


@dataclass(frozen=True, slots=True)
class Choice:
    """A token; its log probability and the alternatives' (id, log probability), best first, where they were asked for."""

    token: int
    logprob: float | None = None
    alternatives: tuple[tuple[int, float], ...] = ()


def choose(logits: np.ndarray, history: Sequence[int], position: int, sampling: Sampling) -> Choice:
    """Choose the token after the row at `position`.

    logits float32 [vocabulary], finite; `history` ends with the row's own token.  Log probabilities are those of the
    logits as they are, before penalties and filters.  Raises RequestError where penalties leave the range of numbers.
    """
    values = penalised(logits, history, sampling) if sampling.has_penalties else logits
    if sampling.is_greedy:
        token = int(best_candidates(values, 1)[0][0])
    else:
        ids, best = best_candidates(values, sampling.n_candidates)
        token = int(ids[draw(best, sampling, uniform(sampling.seed, position))])
    if sampling.logprobs < 0:
        return Choice(token)
    return Choice(token, *_log_probabilities(logits, token, sampling.logprobs))


def couple(logits: np.ndarray, position: int, sampling: Sampling) -> int:
    """Return the index that the row at `position` would draw from other logits float32 [n], finite: a guess of its token.

    The same filters and the same u as the row's own draw, so that similar logits mostly give the same token.  Penalties are
    left out.
    """
    ids, best = best_candidates(logits, sampling.n_candidates)
    return int(ids[draw(best, sampling, uniform(sampling.seed, position))])


def _log_probabilities(logits: np.ndarray, token: int, count: int) -> tuple[float, tuple[tuple[int, float], ...]]:
    ids, best = best_candidates(logits, max(1, count))
    top = best[0]
    total = log_of_total(logits, top)
    alternatives = tuple((int(i), float((value - top) - total)) for i, value in zip(ids[:count], best[:count], strict=True))
    return float((np.float64(logits[token]) - top) - total), alternatives
