"""Who proposes what: the drafts of a run's windows, and what is learned from how they fared.

A request alone drafts up to `spec` rows: by its text's own past where a match agrees with the draft layer's first draft (or
where there is no draft layer), else by a chain of the draft layer.  In company, `batch_mtp` gives each slot one draft of the
draft layer, all slots in one step.  A request's own drafts go before both.  Drafts never change an answer.
Does not know: slots, windows in flight, stages.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from strata.batch.conversation import Conversation
from strata.batch.counters import DRAFT_COUNTERS
from strata.batch.draft_settings import BATCH_ROWS, DraftSettings
from strata.rows import KeptRows, Window, WindowCosts
from strata.sampling.sampler import couple
from strata.windows.contract import DraftLayer
from strata.windows.proposals import NOTHING, Proposal
from strata.windows.suffix import SuffixIndex
from strata.windows.widths import WidthPolicy

SUFFIX_COSTS = WindowCosts(row=0.26, draft=0.0)
"""What rows cost where no draft layer says so."""
MOST_WAITING = 64
"""Rows whose cells may wait."""


class _Memory:
    """What the drafter keeps of one conversation."""

    def __init__(self, settings: DraftSettings, costs: WindowCosts) -> None:
        self.policy = WidthPolicy(costs, settings.policy == "full")
        self.suffix = SuffixIndex(settings.suffix) if settings.suffix else None


class Drafter:
    """The drafts of one run; `layer` is None without a draft layer."""

    def __init__(self, settings: DraftSettings, layer: DraftLayer | None, counters: Counter) -> None:
        self._settings, self._layer, self._counters = settings, layer, counters
        self._costs = layer.costs if layer is not None else SUFFIX_COSTS
        self._memories: dict[int, _Memory] = {}
        self._waiting: list[KeptRows] = []
        for name in DRAFT_COUNTERS:
            counters[name] += 0

    def wants_cells(self, is_alone: bool) -> bool:
        """Whether a window's rows should become cells of the draft layer."""
        return self._settings.batch_mtp or (self._settings.mtp and is_alone)

    # ---- proposals

    def propose(self, conversations: Sequence[Conversation], most_rows: int, is_alone: bool) -> list[Proposal]:
        """Return a proposal for each conversation of a window that gives each of them `most_rows` rows at most."""
        proposals = [self._given(c, most_rows) for c in conversations]
        own = [i for i, c in enumerate(conversations) if c.request.drafts is None]
        if is_alone and own:
            proposals[0] = self._alone(conversations[0], min(most_rows, self._settings.spec))
        elif self._settings.batch_mtp:
            able = [i for i in own if conversations[i].most_drafts(BATCH_ROWS) and self._has_tip(conversations[i])]
            for i, proposal in zip(able, self._one_each([conversations[i] for i in able]), strict=True):
                proposals[i] = proposal
        return proposals

    def _given(self, conversation: Conversation, most_rows: int) -> Proposal:
        request = conversation.request
        most = conversation.most_drafts(min(most_rows, request.window_rows))
        if request.drafts is None or not most:
            return NOTHING
        return Proposal(tuple(request.drafts([e.pick for e in conversation.emitted]))[:most], "given")

    def _one_each(self, conversations: Sequence[Conversation]) -> list[Proposal]:
        if not conversations:
            return []
        tokens, probabilities = self._step(conversations)
        return [
            Proposal((token,), "mtp", (probability,)) if probability >= self._least(c) else Proposal(probabilities=(probability,))
            for c, token, probability in zip(conversations, tokens, probabilities, strict=True)
        ]

    def _alone(self, conversation: Conversation, most_rows: int) -> Proposal:
        most, memory = conversation.most_drafts(most_rows), self._memory(conversation)
        if not most:
            return NOTHING
        match = None
        if memory.suffix is not None:
            memory.suffix.extend(conversation.text[len(memory.suffix.tokens) :])
            match = memory.suffix.match()
        if match is None and not (self._settings.mtp and memory.policy.wants_step(0, 1.0)):
            return NOTHING
        if not self._settings.mtp or not self._has_tip(conversation):
            return NOTHING if match is None else self._copied(memory, match, 0.0, most, ())
        tokens, probabilities = self._step([conversation])
        first, probability = tokens[0], probabilities[0]
        if match is not None and memory.suffix.proposal(match, 1)[0] == first:
            copied = self._copied(memory, match, memory.policy.step_share(probability), most, (probability,))
            if copied.tokens:
                return copied
        elif match is not None:
            self._counters["suffix_refused"] += 1
        return self._chained(conversation, memory.policy, most, first, probability)

    def _copied(self, memory: _Memory, match, first_share: float, most: int, probabilities: tuple[float, ...]) -> Proposal:
        count = memory.policy.suffix_rows(match.length, first_share, most)
        self._counters["suffix_hits"] += count > 0
        source = "suffix" if count else ""
        return Proposal(memory.suffix.proposal(match, count), source, probabilities, match.length)

    def _chained(self, conversation: Conversation, policy: WidthPolicy, most: int, token: int, probability: float) -> Proposal:
        drafts: list[int] = []
        seen, path = [probability], 1.0
        while True:
            path *= policy.step_share(probability)
            if not probability >= self._least(conversation) or not policy.takes(path):
                break
            drafts.append(token)
            is_end = token in conversation.request.stop_tokens
            if len(drafts) == most or is_end or not policy.wants_step(len(drafts), path):
                break
            tokens, probabilities = self._step([conversation], [token], len(drafts))
            token, probability = tokens[0], probabilities[0]
            seen.append(probability)
        return Proposal(tuple(drafts), "mtp" if drafts else "", tuple(seen))

    def _step(self, conversations: Sequence[Conversation], tokens: Sequence[int] | None = None, depth: int = 0) -> tuple[list[int], list[float]]:
        """Return (drafts, probabilities) of one step of the draft layer, `depth` steps behind the fed tokens."""
        self._counters["draft_steps"] += len(conversations)
        made = self._layer.propose([c.slot for c in conversations], tokens)
        drafts = made.tokens.tolist()
        if self._settings.coupled:
            for row, conversation in enumerate(conversations):
                if not conversation.sampling.is_greedy and np.isfinite(made.logits[row]).all():
                    drawn = couple(made.logits[row], conversation.position + depth, conversation.sampling)
                    drafts[row] = int(self._layer.token_ids[drawn])
        return drafts, made.probabilities.tolist()

    def _has_tip(self, conversation: Conversation) -> bool:
        """Whether a draft can follow the conversation's last kept row."""
        if self._layer is None:
            return False
        self._build_waiting()
        return self._layer.has_tip(conversation.slot, conversation.position - 1)

    def _least(self, conversation: Conversation) -> float:
        own = conversation.request.spec_min_p
        return self._settings.min_p if own is None else own

    def _memory(self, conversation: Conversation) -> _Memory:
        if conversation.number not in self._memories:
            self._memories[conversation.number] = _Memory(self._settings, self._costs)
        return self._memories[conversation.number]

    # ---- results

    def learn(self, conversation: Conversation, proposal: Proposal, kept: int, accepted: int) -> None:
        """Take how a proposal fared: rows kept and drafts accepted."""
        offered = len(proposal.tokens)
        if proposal.source:
            self._counters[f"{proposal.source}_offered"] += offered
            self._counters[f"{proposal.source}_accepted"] += accepted
        if proposal.source == "mtp":
            for depth in range(1, min(offered, accepted + 1) + 1):
                self._counters[f"mtp_reached_{depth}"] += 1
                self._counters[f"mtp_accepted_{depth}"] += depth <= accepted
        if proposal.source == "given" or conversation.number not in self._memories:
            return
        policy = self._memories[conversation.number].policy
        if proposal.source == "suffix":
            policy.learn_suffix(proposal.match_length, offered, accepted)
            policy.learn_steps(proposal.probabilities, len(proposal.probabilities), min(accepted, 1))
        elif proposal.probabilities:
            policy.learn_steps(proposal.probabilities, offered, accepted)
        policy.learn_window(1 + offered, len(proposal.probabilities), kept)

    def build(self, window: Window, conversations: Sequence[Conversation], kept: np.ndarray) -> None:
        """Take a window's kept rows as cells where its conversations go on; the tokens behind the rows are known.

        A small window's cells are made when a draft is next wanted, with those of the windows before it.
        """
        if not window.for_drafts:
            return
        wanted = np.where([not c.is_done for c in conversations], kept, 0).astype(np.int32)
        if not wanted.any():
            self._layer.forget(window)
            return
        starts = [segment.start + 1 for segment in window.segments]
        tokens = tuple(tuple(c.text[at : at + int(n)]) for c, at, n in zip(conversations, starts, wanted, strict=True))
        self._waiting.append(KeptRows(window, wanted, tokens))
        if sum(int(part.kept.sum()) for part in self._waiting) >= MOST_WAITING:
            self._build_waiting()

    def _build_waiting(self) -> None:
        if self._waiting:
            self._counters["draft_cells"] += sum(int(part.kept.sum()) for part in self._waiting)
            self._layer.build(self._waiting)
            self._waiting = []

    def leave(self, conversation: Conversation) -> None:
        """Forget a conversation that has ended; cells of others in its windows are made first."""
        self._memories.pop(conversation.number, None)
        mine = [part for part in self._waiting if any(s.request == conversation.number for s in part.window.segments)]
        if any(len(part.window.segments) > 1 for part in mine):
            self._build_waiting()
            return
        for part in mine:
            self._layer.forget(part.window)
            self._waiting.remove(part)
