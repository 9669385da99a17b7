"""Requests in company: streams that are mixed up, errors that spread.

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

STREAMS, ERRORS = "mixed-up streams", "error containment"
COMPANY = ("batch/slots-2", "batch/early-ends-8", "batch/late-4")
FAILING = ("contained/slots-2", "contained/slots-5")


def faults() -> list[Fault]:
    """Return the faults."""
    return [*_streams(), *_errors()]


def at_entry(change: Callable[[Run, Conversation], None]) -> Callable[[Engine], None]:
    """Plant a change of each conversation as it enters its slot."""
    return lambda engine: on_conversation(engine, change)


def company_of(run: Run, conversation: Conversation) -> list[Conversation]:
    """Return the other conversations in slots."""
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
        Fault(
            "streams-swapped-rows",
            STREAMS,
            "logits",
            "in company, logits go to the conversations in the opposite order",
            COMPANY,
            lambda engine: on_logits(engine, swapped),
        ),
        Fault(
            "streams-swapped-answers",
            STREAMS,
            "answers",
            "an answer is given to the request before, where both are done",
            COMPANY,
            lambda engine: on_end(engine, swap_answers),
        ),
        Fault(
            "streams-old-text",
            STREAMS,
            "a conversation's text",
            "who joins late goes on with the latest token of another conversation",
            ("batch/slots-2", "batch/late-4"),
            at_entry(_old_text),
        ),
        Fault(
            "streams-shared-list",
            STREAMS,
            "emitted tokens",
            "who enters a slot that was used goes on in the list of tokens of the one before",
            ("batch/slots-2", "batch/late-4"),
            _shared_list,
        ),
        Fault(
            "streams-neighbours-token",
            STREAMS,
            "fed token",
            "in company, the fed token is that of another conversation now and then",
            COMPANY,
            at_entry(_feeds_other),
        ),
        Fault(
            "streams-logprobs",
            STREAMS,
            "log probabilities",
            "in company, log probabilities are those of the row before",
            ("sampled/slots-4", "batch-mtp/sampled-4"),
            at_entry(_old_logprobs),
        ),
    ]


def _old_text(run: Run, conversation: Conversation) -> None:
    others = company_of(run, conversation)

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
            others, made = company_of(run, conversation), next_segment(drafts)
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
            told = before[0] if before and company_of(run, conversation) else choice
            before[:] = [choice]
            return replace(choice, logprob=told.logprob, alternatives=told.alternatives)

        return chosen

    wrap(conversation, "_choose", make)


# ---- error containment


def _errors() -> list[Fault]:
    return [
        Fault("error-rethrown", ERRORS, "a slot's failure", "one conversation's error ends the run", FAILING, at_entry(_rethrown)),
        Fault(
            "error-spreads", ERRORS, "a slot's failure", "one conversation's error ends those beside it too", FAILING, at_entry(_spreads)
        ),
        Fault(
            "error-swallowed",
            ERRORS,
            "a slot's failure",
            "in company, a failed conversation ends as if it had its tokens",
            FAILING,
            at_entry(_swallowed),
        ),
        Fault("error-clears", ERRORS, "sessions' state", "a failure clears the state of all slots", FAILING, at_entry(_clears_all)),
        Fault(
            "error-not-cleared",
            ERRORS,
            "sessions' state",
            "the session behind a failed one begins with its state",
            FAILING,
            at_entry(_not_cleared),
        ),
    ]


def _failing(conversation: Conversation, change: Callable[[Callable, Exception], None]) -> None:
    wrap(conversation, "fail", lambda fail: lambda error: change(fail, error))


def _rethrown(run: Run, conversation: Conversation) -> None:
    def failed(fail: Callable, error: Exception) -> None:
        if company_of(run, conversation):
            raise PlantedFault("a failed slot", str(error), "it was planted")
        fail(error)

    _failing(conversation, failed)


def _spreads(run: Run, conversation: Conversation) -> None:
    def failed(fail: Callable, error: Exception) -> None:
        fail(error)
        for other in company_of(run, conversation):
            other.finish = other.finish or "error"

    _failing(conversation, failed)


def _swallowed(run: Run, conversation: Conversation) -> None:
    def failed(fail: Callable, error: Exception) -> None:
        fail(error)
        if company_of(run, conversation):
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
