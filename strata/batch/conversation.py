"""One request in a slot while it runs: its text, what was emitted, and what its next rows are.

`text` holds every token known: the prompt, then the tokens to be fed (picks, or forced ones); `position` counts the cells
held, so text[position] is fed next; `latest_window` is the number of the last window it was in.  A row's token is chosen from its logits, its position and the text up to it, and from
nothing else (`strata.sampling`).  The only mutable object of this room; the engine's thread alone changes it.
Does not know: stages, other slots, where drafts come from.
"""

from collections.abc import Sequence

import numpy as np

from strata.batch.requests import Answer, Emitted, Request
from strata.errors import RequestError
from strata.experts.dispatch import share_of
from strata.rows import Segment
from strata.sampling.sampler import Choice, choose
from strata.sampling.settings import Sampling
from strata.windows.picks import LogitRow, read_row


class Conversation:
    """A request's progress in its slot; `clock_ns` seeds its draws where the request has no seed."""

    def __init__(self, number: int, request: Request, slot: int, clock_ns: int = 0) -> None:
        self.number, self.request, self.slot = number, request, slot
        self.sampling: Sampling = request.sampling.seeded(clock_ns, number)
        self.text: list[int] = list(request.prompt)
        self.position = 0
        self.emitted: list[Emitted] = []
        self.finish, self.error = "", ""
        self.in_flight = False
        self.latest_window = 0

    @property
    def is_done(self) -> bool:
        return bool(self.finish)

    def chunks(self, chunk_rows: int, short_read: int = 0, window_rows: int = 8) -> list[Segment]:
        """Return the prompt's chunks; only the last one wants logits, of its last row.

        From where `short_read` tokens or less are left they have the size of a decode window.
        """
        prompt, found, start = self.request.prompt, [], 0
        while start < len(prompt):
            left = len(prompt) - start
            n = min(left, chunk_rows, window_rows if left <= short_read else left)
            found.append(Segment(self.slot, start, prompt[start : start + n], int(n == left), self.number))
            start += n
        return found

    def most_drafts(self, most_rows: int) -> int:
        """Return how many drafts a window of at most `most_rows` rows of this request can use."""
        return max(0, min(most_rows, self.request.max_new - len(self.emitted)) - 1)

    def next_segment(self, drafts: tuple[int, ...]) -> Segment:
        """Return the fed token and the drafts behind it."""
        tokens = (self.text[self.position], *drafts)
        return Segment(self.slot, self.position, tokens, len(tokens), self.number)

    def take_prompt(self, logits: np.ndarray) -> None:
        """Take the logits [vocabulary] of the prompt's last token."""
        self.position = len(self.request.prompt)
        self._emit(logits, self.position - 1)

    def take_window(self, logits: np.ndarray, drafts: tuple[int, ...]) -> tuple[int, int]:
        """Take a window's logits [rows, vocabulary]; return (rows kept, drafts accepted).

        A row is looked at when all drafts before it were the tokens chosen: drafts are accepted by the longest prefix in
        which they equal the picks, and what rejected rows hold is never seen.
        """
        start = self.position
        for kept, row in enumerate(logits, start=1):
            self._emit(row, start + kept - 1)
            if self.finish == "error":
                return kept - 1, min(kept - 1, len(drafts))
            self.position += 1
            is_accepted = kept <= len(drafts) and self.text[self.position] == drafts[kept - 1]
            if self.is_done or not is_accepted:
                return kept, kept - 1 + (is_accepted and self.is_done)
        return len(logits), len(drafts)

    def _emit(self, logits: np.ndarray, position: int) -> None:
        """Choose the token after `position` and add it to the text; text ends with that position's token."""
        row = read_row(logits)
        if not row.finite:
            self.fail(RequestError(f"position {position}", "its logits are not finite", "look for the first such row with a ledger"))
            return
        choice = self._choose(logits, row, position)
        index = len(self.emitted)
        self.emitted.append(Emitted(position, choice.token, row, choice.logprob, choice.alternatives))
        forced = self.request.forced
        self.text.append(choice.token if forced is None or index >= len(forced) else forced[index])
        if choice.token in self.request.stop_tokens:
            self.finish = "stop"
        elif len(self.emitted) >= self.request.max_new:
            self.finish = "length"

    def _choose(self, logits: np.ndarray, row: LogitRow, position: int) -> Choice:
        sampling = self.sampling
        if sampling.is_greedy and not sampling.has_penalties and sampling.logprobs < 0:
            return Choice(row.best)
        return choose(logits, self.text, position, sampling)

    def fail(self, error: Exception) -> None:
        """End this conversation with an error; others go on."""
        self.finish, self.error = "error", str(error)

    def answer(self) -> Answer:
        return Answer(tuple(self.emitted), self.finish, self.error, self.sampling.seed)


def shared_share(conversations: Sequence[Conversation]) -> int | None:
    """Return the PCIe share, in 256ths, that all conversations of a window ask for; None where they do not agree, or ask for none."""
    asked = {conversation.request.pcie_frac for conversation in conversations}
    return share_of(asked.pop()) if len(asked) == 1 and None not in asked else None
