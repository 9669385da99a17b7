"""Comparison of two arms' answers: token by token, and by the hash of every full logit row.

Row i of an answer is the logits that token i was picked from.  Rows are comparable as long as the tokens before them are
equal, so a request is compared up to and including its first token that differs.  Equal means equal bits.  Log probabilities
are compared last: a row may be right and what is told of it another's.
Does not know: arms, suites, what a difference means.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from strata.batch.requests import Answer


@dataclass(frozen=True, slots=True)
class Side:
    """One arm at one row: its pick, the row's hash, and the two best logits."""

    token: int
    digest: str
    second: int
    best_logit: float
    second_logit: float

    @property
    def margin(self) -> float:
        """Logit difference between the best and the second-best id."""
        return self.best_logit - self.second_logit


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Row `index` of an answer, picked at `position`, in both arms."""

    index: int
    position: int
    left: Side
    right: Side


@dataclass(frozen=True, slots=True)
class Difference:
    """How one request's answers differ.

    `kind` is `token`, `logits` (all tokens equal, bits not), `length`, `finish` or `logprobs`; `row` is the first row whose bits
    differ and `token` the first whose picks do, each None where there is none.  `detail` says what rows do not.
    """

    request: int
    label: str
    kind: str
    row: Mismatch | None
    token: Mismatch | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Counts over all requests, and the first difference of each request that has one."""

    n_tokens: int
    n_rows: int
    n_rows_equal: int
    differences: tuple[Difference, ...]

    @property
    def is_exact(self) -> bool:
        return not self.differences


def compare(left: Sequence[Answer], right: Sequence[Answer], labels: Sequence[str]) -> Comparison:
    """Compare two arms' answers to the same requests; raises ValueError where their numbers differ."""
    n_tokens = n_equal = 0
    differences: list[Difference] = []
    for request, (a, b, label) in enumerate(zip(left, right, labels, strict=True)):
        n, equal, found = _compare_request(request, label, a, b)
        n_tokens += n
        n_equal += equal
        differences += [found] if found else []
    return Comparison(n_tokens, n_tokens, n_equal, tuple(differences))


def _compare_request(request: int, label: str, a: Answer, b: Answer) -> tuple[int, int, Difference | None]:
    """Return (rows compared, rows with equal bits, the difference or None)."""
    n = equal = 0
    row = token = None
    for index, (x, y) in enumerate(zip(a.emitted, b.emitted, strict=False)):
        n += 1
        same_bits = x.row.digest == y.row.digest and x.position == y.position
        equal += same_bits
        if same_bits and x.pick == y.pick:
            continue
        row = row or Mismatch(index, x.position, _side(x), _side(y))
        if x.pick != y.pick:
            token = Mismatch(index, x.position, _side(x), _side(y))
            break
    if token is not None:
        return n, equal, Difference(request, label, "token", row, token)
    if row is None and (a.finish, a.error) != (b.finish, b.error):
        return n, equal, Difference(request, label, "finish", None, None, f"{_ending(a)} against {_ending(b)}")
    if row is None and len(a.emitted) != len(b.emitted):
        return n, equal, Difference(request, label, "length", None, None, f"{len(a.emitted)} tokens against {len(b.emitted)}")
    if row is not None:
        return n, equal, Difference(request, label, "logits", row, None)
    return n, equal, _compare_told(request, label, a, b)


def _compare_told(request: int, label: str, a: Answer, b: Answer) -> Difference | None:
    """Compare log probabilities and alternatives of answers that are equal otherwise."""
    for index, (x, y) in enumerate(zip(a.emitted, b.emitted, strict=True)):
        if (x.logprob, x.alternatives) != (y.logprob, y.alternatives):
            return Difference(request, label, "logprobs", None, None, f"of token {index}: {x.logprob} against {y.logprob}")
    return None


def _side(emitted) -> Side:
    row = emitted.row
    return Side(emitted.pick, row.digest, row.second, row.best_logit, row.second_logit)


def _ending(answer: Answer) -> str:
    return f"{answer.finish} after {len(answer.emitted)} tokens" + (f" ({answer.error})" if answer.error else "")
