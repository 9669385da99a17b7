"""One request in a slot while it runs: what was fed, what was emitted, and what its next rows are.

The only mutable object of this room; the engine's thread alone changes it.  Does not know: stages, other slots.
"""

from collections.abc import Sequence

from strata.batch.requests import Answer, Emitted, Request
from strata.errors import RequestError
from strata.rows import Segment
from strata.windows.accept import count_accepted
from strata.windows.picks import LogitRow


class Conversation:
    """A request's progress in its slot; `position` counts the cells it holds."""

    def __init__(self, number: int, request: Request, slot: int) -> None:
        self.number, self.request, self.slot = number, request, slot
        self.position = 0
        self.emitted: list[Emitted] = []
        self.finish, self.error = "", ""
        self.in_flight = False
        self._drafts: tuple[int, ...] = ()

    @property
    def is_done(self) -> bool:
        return bool(self.finish)

    def chunks(self, chunk_rows: int) -> list[Segment]:
        """Return the prompt's chunks; only the last one wants logits, of its last row."""
        prompt = self.request.prompt
        starts = range(0, len(prompt), chunk_rows)
        return [
            Segment(self.slot, start, prompt[start : start + chunk_rows], int(start + chunk_rows >= len(prompt)), self.number)
            for start in starts
        ]

    def next_segment(self, most_rows: int) -> Segment:
        """Return the fed token and the drafts behind it, at most `most_rows` rows."""
        left = self.request.max_new - len(self.emitted)
        most_drafts = max(0, min(most_rows, self.request.window_rows, left) - 1)
        proposed = self.request.drafts([e.pick for e in self.emitted]) if self.request.drafts and most_drafts else ()
        self._drafts = tuple(proposed[:most_drafts])
        tokens = (self._fed_token(len(self.emitted) - 1), *self._drafts)
        return Segment(self.slot, self.position, tokens, len(tokens), self.number)

    def _fed_token(self, index: int) -> int:
        forced = self.request.forced
        return forced[index] if forced is not None else self.emitted[index].pick

    def take_prompt(self, row: LogitRow) -> None:
        """Take the logits of the prompt's last token."""
        self.position = len(self.request.prompt)
        self._emit(row, self.position - 1)

    def take_window(self, rows: Sequence[LogitRow]) -> tuple[int, int]:
        """Take a window's rows; return (rows kept, drafts accepted)."""
        start, first = self.position, len(self.emitted)
        accepted = count_accepted([self._target(row, first + j) for j, row in enumerate(rows)], self._drafts)
        kept = 0
        for row in rows[: accepted + 1]:
            self._emit(row, start + kept)
            kept += 1
            if self.is_done:
                break
        self.position += kept
        return kept, min(kept, accepted)

    def _target(self, row: LogitRow, index: int) -> int:
        forced = self.request.forced
        return row.best if forced is None or index >= len(forced) else forced[index]

    def _emit(self, row: LogitRow, position: int) -> None:
        if not row.finite:
            self.fail(RequestError(f"position {position}", "its logits are not finite", "look for the first such row with a ledger"))
            return
        self.emitted.append(Emitted(position, row.best, row))
        if row.best in self.request.stop_tokens:
            self.finish = "stop"
        elif len(self.emitted) >= self.request.max_new:
            self.finish = "length"

    def fail(self, error: Exception) -> None:
        """End this conversation with an error; others go on."""
        self.finish, self.error = "error", str(error)

    def answer(self) -> Answer:
        return Answer(tuple(self.emitted), self.finish, self.error)
