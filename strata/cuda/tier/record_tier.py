"""Recording a tier's part of an experts block: dispatch and fetch behind the router, the meeting behind the products.

Made for each block and not kept, as `MoeRecorder`.  Does not know: routers, products, streams.
"""

import numpy as np

from strata.cuda.memory.placed import Part
from strata.cuda.packed.products import Lists
from strata.cuda.tier.dispatching import SIZES, Dispatched, launch_dispatch
from strata.cuda.tier.expert_cache import PARTS
from strata.cuda.tier.fetching import launch_fetch
from strata.cuda.tier.meeting_kernels import launch_meet


class TierRecorder:
    """Lists the launches by which one layer's experts are parted, fetched and met, through a recorder's `add`."""

    has_jobs = True

    def __init__(self, meetings, layer: int, work, n_rows: int, add) -> None:
        """`meetings` are the stage's (`strata.cuda.tier.meeting.Meetings`), with a mailbox that has room for the rows."""
        self.meetings, self.layer, self.n, self.add = meetings, layer, n_rows, add
        self.place, self.n_entries = meetings.layers.index(layer), n_rows * meetings.config.n_used
        most_places = max(1, meetings.tier.memory.n_places)
        lists = work.lists("tier lists", meetings.config.n_experts, self.n_entries)
        entry_of, fetched, sizes = (
            work.get(f"tier {name}", n, np.int32) for name, n in (("entry of", self.n_entries), ("fetched", most_places), ("sizes", SIZES))
        )
        self.dispatched = Dispatched(lists, entry_of, fetched, sizes)

    def dispatch(self, w: Part, ids, lists: Lists, entry_of, values) -> tuple[Part, Lists, object]:
        """Part the router's lists; return the block's weights with the tier's matrices, the card's own lists, entry_of of all entries."""
        m = self.meetings
        memory, n_experts = m.tier.memory, m.config.n_experts
        self.add(launch_dispatch(
            m.device, m.mailbox, self.place, self.n, ids, lists, entry_of, values, m.tables.card, memory.n_slots, memory.n_places, self.dispatched,
        ))
        if memory.n_places:
            most = min(n_experts, self.n_entries)
            self.add(launch_fetch(m.device, memory, self.layer, self.place, n_experts, most, m.tables.card, self.dispatched))
        matrices = dict(zip(PARTS, memory.matrices(self.layer), strict=True))
        return Part(w.named | matrices), self.dispatched.lists, self.dispatched.entry_of

    def meet(self, outputs) -> None:
        """Wait for the pool, and have its outputs behind the card's own."""
        m = self.meetings
        self.add(launch_meet(m.device, m.mailbox, self.place, self.n, self.dispatched, outputs, m.patience_ns))
