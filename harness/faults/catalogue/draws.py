"""Seed plumbing: what a row draws with, or from, is not its own.

Does not know: checks.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from harness.faults.catalogue.requests import at_entry, company_of
from harness.faults.fault import Fault
from harness.faults.hooks import wrap
from strata.batch.conversation import Conversation
from strata.batch.run import Run
from strata.sampling.settings import Sampling

SEEDS = "seed plumbing"
DRAWN = ("sampled/slots-4", "sampled/late-4", "batch-mtp/sampled-4")
DRAFTED = ("sampled/mtp", "batch-mtp/sampled-4", "sampled/batch-mtp-4")


def faults() -> list[Fault]:
    """Return the faults."""
    return [
        _sampling(
            "seed-ignored",
            "seed",
            "in company, the seed is the largest of the others'",
            DRAWN,
            lambda own, others: replace(own, seed=max(o.seed for o in others) or own.seed),
        ),
        _sampling(
            "seed-any-greedy",
            "choice of the sampler",
            "one greedy row makes all rows of a window greedy",
            DRAWN,
            lambda own, others: Sampling() if any(o.is_greedy for o in others) else own,
        ),
        _sampling("seed-any-drawn", "choice of the sampler", "one row that draws makes all rows of a window draw", DRAWN, _drawn),
        _sampling(
            "seed-top-p",
            "top_p",
            "in company, top_p is that of another row",
            DRAWN,
            lambda own, others: replace(own, top_p=min(o.top_p for o in others)),
        ),
        _sampling(
            "seed-penalties",
            "penalties",
            "in company, penalties are those of another row",
            DRAWN,
            lambda own, others: replace(own, penalty_repeat=others[0].penalty_repeat, penalty_freq=others[-1].penalty_freq),
        ),
        Fault(
            "seed-per-draft",
            SEEDS,
            "draws",
            "draws advance with each row that was looked at, drafts included, not with the position",
            DRAFTED,
            at_entry(_per_draft),
        ),
        Fault("seed-slot", SEEDS, "draws", "a draw depends on the slot too", DRAWN, at_entry(_of_slot)),
        Fault(
            "seed-history",
            SEEDS,
            "penalties",
            "penalties see the drafts of a window, also those behind a row",
            DRAFTED,
            at_entry(_drafts_in_history),
        ),
        Fault(
            "seed-ties",
            SEEDS,
            "candidates",
            "in company, equal logits prefer the higher index",
            ("sampled/ties-slots",),
            at_entry(_higher_index),
        ),
    ]


def _drawn(own: Sampling, others: list[Sampling]) -> Sampling:
    drawing = [other for other in others if not other.is_greedy]
    return drawing[0] if own.is_greedy and drawing else own


def _sampling(name: str, site: str, words: str, seen_by: tuple[str, ...], change: Callable[[Sampling, list[Sampling]], Sampling]) -> Fault:
    """A conversation chooses with other keys while it has company."""

    def entering(run: Run, conversation: Conversation) -> None:
        own = conversation.sampling

        def make(choose: Callable) -> Callable:
            def chosen(*arguments):
                others = [c.request.sampling for c in company_of(run, conversation)]
                conversation.sampling = change(own, others) if others else own
                try:
                    return choose(*arguments)
                finally:
                    conversation.sampling = own

            return chosen

        wrap(conversation, "_choose", make)

    return Fault(name, SEEDS, site, words, seen_by, at_entry(entering))


def _choosing(conversation: Conversation, position_of: Callable[[int], int]) -> None:
    wrap(conversation, "_choose", lambda choose: lambda logits, row, position: choose(logits, row, position_of(position)))


def _per_draft(run: Run, conversation: Conversation) -> None:
    drawn = [0]

    def make(take: Callable) -> Callable:
        def taken(logits: np.ndarray, drafts: tuple[int, ...]):
            drawn[0] += len(drafts)
            return take(logits, drafts)

        return taken

    wrap(conversation, "take_window", make)
    _choosing(conversation, lambda position: position + drawn[0])


def _of_slot(run: Run, conversation: Conversation) -> None:
    _choosing(conversation, lambda position: position + (conversation.slot << 20))


def _drafts_in_history(run: Run, conversation: Conversation) -> None:
    def make(take: Callable) -> Callable:
        def taken(logits: np.ndarray, drafts: tuple[int, ...]):
            pending[:] = drafts
            return take(logits, drafts)

        return taken

    def make_choice(choose: Callable) -> Callable:
        def chosen(*arguments):
            text = conversation.text
            conversation.text = [*text, *pending]
            try:
                return choose(*arguments)
            finally:
                conversation.text = text

        return chosen

    pending: list[int] = []
    wrap(conversation, "take_window", make)
    wrap(conversation, "_choose", make_choice)


def _higher_index(run: Run, conversation: Conversation) -> None:
    def make(choose: Callable) -> Callable:
        def chosen(logits: np.ndarray, row, position: int):
            choice = choose(logits, row, position)
            equal = np.flatnonzero(logits == logits[choice.token])
            return replace(choice, token=int(equal[-1])) if company_of(run, conversation) else choice

        return chosen

    wrap(conversation, "_choose", make)
