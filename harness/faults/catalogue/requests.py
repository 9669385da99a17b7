"""Requests in company: streams that are mixed up, seeds that are not a row's own, errors that spread.

Does not know: checks.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from harness.faults.fault import Fault
from harness.faults.hooks import on_conversation, on_end, on_logits, on_run, wrap
from harness.faults.when import has_company
from strata.batch.conversation import Conversation
from strata.batch.engine import Engine
from strata.batch.run import Run
from strata.errors import PlantedFault
from strata.rows import Window
from strata.sampling.settings import Sampling

STREAMS, SEEDS, ERRORS = "mixed-up streams", "seed plumbing", "error containment"
COMPANY = ("batch/slots-2", "batch/early-ends-8", "batch/late-4")
DRAWN = ("sampled/slots-4", "sampled/late-4", "batch-mtp/sampled-4")
DRAFTED = ("sampled/mtp", "batch-mtp/sampled-4", "sampled/batch-mtp-4")
FAILING = ("contained/slots-2", "contained/slots-5")


def faults() -> list[Fault]:
    """Return the faults."""
    return [*_streams(), *_seeds(), *_errors()]


def _entering(change: Callable[[Run, Conversation], None]) -> Callable[[Engine], None]:
    return lambda engine: on_conversation(engine, change)


def _others(run: Run, conversation: Conversation) -> list[Conversation]:
    return [c for c in run.slots if c is not None and c is not conversation]


# ---- mixed-up streams


def _streams() -> list[Fault]:
    def swapped(window: Window, logits: np.ndarray) -> np.ndarray:
        return logits[::-1].copy() if has_company(window) else logits

    def swap_answers(run: Run, conversation: Conversation) -> None:
        answers, before = run.answers, conversation.number - 1
        if before in answers and run.engine.resolved.n_slots > 1:
            answers[before], answers[conversation.number] = answers[conversation.number], answers[before]

    return [
        Fault("streams-swapped-rows", STREAMS, "logits", "in company, logits go to the conversations in the opposite order", COMPANY, lambda engine: on_logits(engine, swapped)),
        Fault("streams-swapped-answers", STREAMS, "answers", "an answer is given to the request before, where both are done", COMPANY, lambda engine: on_end(engine, swap_answers)),
        Fault("streams-old-text", STREAMS, "a conversation's text", "who joins late goes on with the latest token of another conversation", ("batch/slots-2", "batch/late-4"), _entering(_old_text)),
        Fault("streams-shared-list", STREAMS, "emitted tokens", "who enters a slot that was used goes on in the list of tokens of the one before", ("batch/slots-2", "batch/late-4"), _shared_list),
        Fault("streams-neighbours-token", STREAMS, "fed token", "in company, the fed token is that of another conversation now and then", COMPANY, _entering(_feeds_other)),
        Fault("streams-logprobs", STREAMS, "log probabilities", "in company, log probabilities are those of the row before", ("sampled/slots-4", "batch-mtp/sampled-4"), _entering(_old_logprobs)),
    ]


def _old_text(run: Run, conversation: Conversation) -> None:
    others = _others(run, conversation)

    def make(take: Callable) -> Callable:
        def taken(logits: np.ndarray) -> None:
            take(logits)
            if others and others[0].emitted:
                conversation.text[-1] = others[0].text[-1]

        return taken

    wrap(conversation, "take_prompt", make)


def _shared_list(engine: Engine) -> None:
    def of_run(run: Run) -> None:
        lists: dict[int, list] = {}

        def make(read: Callable) -> Callable:
            def admitted(conversation: Conversation):
                if conversation.slot in lists and run.engine.resolved.n_slots > 1:
                    conversation.emitted = lists[conversation.slot][:1]
                lists[conversation.slot] = conversation.emitted
                return read(conversation)

            return admitted

        wrap(run, "_read", make)

    on_run(engine, of_run)


def _feeds_other(run: Run, conversation: Conversation) -> None:
    def make(next_segment: Callable) -> Callable:
        def segment(drafts: tuple[int, ...]):
            others, made = _others(run, conversation), next_segment(drafts)
            if not others or len(conversation.emitted) % 3:
                return made
            return replace(made, tokens=(others[0].text[-1], *made.tokens[1:]))

        return segment

    wrap(conversation, "next_segment", make)


def _old_logprobs(run: Run, conversation: Conversation) -> None:
    before: list = []

    def make(choose: Callable) -> Callable:
        def chosen(*arguments):
            choice = choose(*arguments)
            told = before[0] if before and _others(run, conversation) else choice
            before[:] = [choice]
            return replace(choice, logprob=told.logprob, alternatives=told.alternatives)

        return chosen

    wrap(conversation, "_choose", make)


# ---- seed plumbing


def _seeds() -> list[Fault]:
    return [
        _sampling("seed-ignored", "seed", "in company, the seed is the largest of the others'", DRAWN, lambda own, others: replace(own, seed=max(o.seed for o in others) or own.seed)),
        _sampling("seed-any-greedy", "choice of the sampler", "one greedy row makes all rows of a window greedy", DRAWN, lambda own, others: Sampling() if any(o.is_greedy for o in others) else own),
        _sampling("seed-any-drawn", "choice of the sampler", "one row that draws makes all rows of a window draw", DRAWN, _drawn),
        _sampling("seed-top-p", "top_p", "in company, top_p is that of another row", DRAWN, lambda own, others: replace(own, top_p=min(o.top_p for o in others))),
        _sampling("seed-penalties", "penalties", "in company, penalties are those of another row", DRAWN, lambda own, others: replace(own, penalty_repeat=others[0].penalty_repeat, penalty_freq=others[-1].penalty_freq)),
        Fault("seed-per-draft", SEEDS, "draws", "draws advance with each row that was looked at, drafts included, not with the position", DRAFTED, _entering(_per_draft)),
        Fault("seed-slot", SEEDS, "draws", "a draw depends on the slot too", DRAWN, _entering(_of_slot)),
        Fault("seed-history", SEEDS, "penalties", "penalties see the drafts of a window, also those behind a row", DRAFTED, _entering(_drafts_in_history)),
        Fault("seed-ties", SEEDS, "candidates", "in company, equal logits prefer the higher index", ("sampled/ties-slots",), _entering(_higher_index)),
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
                others = [c.request.sampling for c in _others(run, conversation)]
                conversation.sampling = change(own, others) if others else own
                try:
                    return choose(*arguments)
                finally:
                    conversation.sampling = own

            return chosen

        wrap(conversation, "_choose", make)

    return Fault(name, SEEDS, site, words, seen_by, _entering(entering))


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
            return replace(choice, token=int(equal[-1])) if _others(run, conversation) else choice

        return chosen

    wrap(conversation, "_choose", make)


# ---- error containment


def _errors() -> list[Fault]:
    return [
        Fault("error-rethrown", ERRORS, "a slot's failure", "one conversation's error ends the run", FAILING, _entering(_rethrown)),
        Fault("error-spreads", ERRORS, "a slot's failure", "one conversation's error ends those beside it too", FAILING, _entering(_spreads)),
        Fault("error-swallowed", ERRORS, "a slot's failure", "in company, a failed conversation ends as if it had its tokens", FAILING, _entering(_swallowed)),
        Fault("error-clears", ERRORS, "sessions' state", "a failure clears the state of all slots", FAILING, _entering(_clears_all)),
        Fault("error-not-cleared", ERRORS, "sessions' state", "the session behind a failed one begins with its state", FAILING, _entering(_not_cleared)),
    ]


def _failing(conversation: Conversation, change: Callable[[Callable, Exception], None]) -> None:
    wrap(conversation, "fail", lambda fail: lambda error: change(fail, error))


def _rethrown(run: Run, conversation: Conversation) -> None:
    def failed(fail: Callable, error: Exception) -> None:
        if _others(run, conversation):
            raise PlantedFault("a failed slot", str(error), "it was planted")
        fail(error)

    _failing(conversation, failed)


def _spreads(run: Run, conversation: Conversation) -> None:
    def failed(fail: Callable, error: Exception) -> None:
        fail(error)
        for other in _others(run, conversation):
            other.finish = other.finish or "error"

    _failing(conversation, failed)


def _swallowed(run: Run, conversation: Conversation) -> None:
    def failed(fail: Callable, error: Exception) -> None:
        fail(error)
        if _others(run, conversation):
            conversation.finish, conversation.error = "length", ""

    _failing(conversation, failed)


def _clears_all(run: Run, conversation: Conversation) -> None:
    def failed(fail: Callable, error: Exception) -> None:
        fail(error)
        for stage in run.engine.stages:
            for slot in range(len(stage.cells)):
                stage.executor.clear(slot)

    _failing(conversation, failed)


def _not_cleared(run: Run, conversation: Conversation) -> None:
    def failed(fail: Callable, error: Exception) -> None:
        fail(error)
        for stage in run.engine.stages:
            wrap(stage.executor, "clear", lambda clear: _skipping_one(clear, conversation.slot))

    _failing(conversation, failed)


def _skipping_one(clear: Callable, slot: int):
    skipped: list[int] = []

    def cleared(at: int) -> None:
        if at == slot and not skipped:
            skipped.append(at)
        else:
            clear(at)

    return cleared
