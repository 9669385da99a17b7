"""Recording the experts block: which launches compute it for a window.

Windows of up to PLACES rows take three launches: router, shared gate, choice and lists; gate, up, activation and codes; down.  Where
the shared expert has another width than the experts, the last two are two launches each; where gate and up differ, or a
kernel has no room on the card, one launch for each product and activation stands in, as in prompt chunks and where somebody looks
(`taps`).  The bits are the same.

Entries of the listed experts come first in the outputs, the shared expert's rows after them.  Does not know: streams, sessions.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from strata.cuda.experts import expert_products
from strata.cuda.experts.activation import launch_activation
from strata.cuda.experts.combine import Combined
from strata.cuda.experts.expert_products import Experts, launch_down, launch_gate_up
from strata.cuda.experts.router import fits as router_fits
from strata.cuda.experts.router import launch_router
from strata.cuda.experts.routing import launch_group, launch_route_and_group
from strata.cuda.machine.posting import EMPTY
from strata.cuda.memory.placed import FloatMatrix, Part
from strata.cuda.memory.workspace import PLACES
from strata.cuda.packed import products
from strata.cuda.packed.products import Coded, Lists, Packed
from strata.cuda.stage.taps import NO_TAPS, TOP, NoTaps, fetched
from strata.rows import Place, Window


class MoeRecorder:
    """Lists the launches of a window's experts blocks through a recorder's `add`, on buffers of its workspace.

    `tier`, where there is one, comes behind the router and behind the products (`record_tier.TierRecorder`, `routing_log.LogRecorder`).
    """

    def __init__(self, device, config, work, n_rows: int, add, taps: NoTaps = NO_TAPS, tier=None) -> None:
        self.device, self.config, self.work, self.n, self.add, self.taps = device, config, work, n_rows, add, taps
        self.tier, self.entry_of = tier, None
        self.layer = TOP
        self.n_entries = n_rows * config.n_used

    def block(self, w: Part, values, coded: Coded, layer: int = TOP) -> Combined:
        """The experts of rows `values` float32 [rows, H] and their codes; taps name the layer."""
        c, work, n_entries = self.config, self.work, self.n_entries
        self.layer = layer
        self.taps.see_coded("moe", layer, coded, self.n)
        ids, entry_of = work.get("ids", n_entries, np.int32), work.get("entry of", n_entries, np.int32)
        weights, lists = work.get("router weights", n_entries), work.lists("lists", c.n_experts, n_entries)
        shared_gate = self._route(w, values, coded, ids, weights, lists, entry_of)
        if self.tier is not None:
            w, lists, entry_of = self.tier.dispatch(w, ids, lists, entry_of, values)
        self.entry_of = entry_of
        if self.n > PLACES:
            self.add(products.plan(self.device, lists))
        hidden = self._hidden(w, coded, lists)
        outputs = self._outputs(w, hidden, lists)
        if self.tier is not None:
            self.tier.meet(outputs)
        self.taps.see("moe.experts", layer, outputs, n_entries, c.hidden, self._of_entries)
        self.taps.see("moe.shared", layer, outputs[n_entries * c.hidden :], self.n, c.hidden)
        # Blocks of gate_up let down's start when they have seen the end of the router's launch, and down's let the next launch's.
        joined = self._is_one_launch((w.gate, w.up), (w.shared_gate, w.shared_up)) and self._is_one_launch((w.down,), (w.shared_down,))
        is_known = joined and self.tier is None and self._is_one_router(w.router, w.shared_router)
        return Combined(c.n_used, outputs, entry_of, weights, outputs[n_entries * c.hidden :], shared_gate, is_known)

    # ---- router

    def _route(self, w: Part, values, coded: Coded, ids, weights, lists: Lists, entry_of) -> Any:
        """Add the choice of experts and their lists; return the shared gate's logits [rows]."""
        c, work, n, router, shared = self.config, self.work, self.n, w.router, w.shared_router
        logits, shared_gate = work.get("router", n * c.n_experts), work.get("shared gate", n)
        if self._is_one_router(router, shared):
            posted = work.constant("router words", np.full(PLACES * c.n_experts, EMPTY))
            self.add(launch_router(
                self.device, c, router.type_name, router.raw, shared.raw, router.n_in, values, n, logits, shared_gate, posted, ids, weights,
                lists, entry_of,
            ))
            return shared_gate
        self._times(router, values, coded, logits)
        self.taps.see("moe.router", self.layer, logits, n, c.n_experts)
        first, count = (work.get(f"expert {name}", c.n_experts, np.int32) for name in ("first", "count"))
        self.add(launch_route_and_group(self.device, c, logits, n, ids, weights, lists, entry_of, first, count))
        grouped = partial(launch_group, self.device, c, ids, n, lists, entry_of, first, count)
        self.taps.see("moe.ids", self.layer, ids, n, c.n_used, None, grouped)
        self.taps.see("moe.weights", self.layer, weights, n, c.n_used)
        self._times(shared, values, coded, shared_gate)
        self.taps.see("moe.shared.gate", self.layer, shared_gate, n, 1)
        return shared_gate

    def _is_one_router(self, router, shared) -> bool:
        if self.taps.is_apart or not (isinstance(router, FloatMatrix) and isinstance(shared, FloatMatrix)):
            return False
        return router_fits(self.device, self.config, (router.type_name, shared.type_name), router.n_in, self.n)

    def _times(self, matrix, values, coded: Coded, out):
        if isinstance(matrix, FloatMatrix):
            self.add(products.floats(self.device, matrix.type_name, matrix.raw, matrix.n_in, matrix.n_out, values, self.n, out))
        else:
            self.add(products.dense(self.device, matrix, coded, self.n, out))
        return out

    # ---- experts

    def _hidden(self, w: Part, coded: Coded, lists: Lists) -> tuple[Coded, Coded]:
        """Codes of silu(gate . x) * (up . x): rows of the entries, and the shared expert's; side by side where they are as wide."""
        n, n_entries, work = self.n, self.n_entries, self.work
        own, common = (w.gate, w.up), (w.shared_gate, w.shared_up)
        if own[0].n_out == common[0].n_out:
            whole = work.coded("experts codes", n_entries + n, own[0].n_out)
            hidden, shared = whole, _from(whole, n_entries)
        else:
            hidden, shared = (work.coded(f"{name} codes", rows, m.n_out) for name, rows, m in (("experts", n_entries, own[0]), ("shared", n, common[0])))
        if self._is_one_launch(own, common):
            self.add(launch_gate_up(self.device, Experts(n, lists, own, common, n_entries), coded, hidden, downs=(w.down, w.shared_down)))
            return hidden, shared
        if self._is_few(own):
            self.add(launch_gate_up(self.device, Experts(n, lists, own, None), coded, hidden))
        else:
            self._separate_hidden(own, coded, n_entries, lists, hidden)
        if self._is_few(common):
            self.add(launch_gate_up(self.device, Experts(n, lists, None, common), coded, shared))
        else:
            self._separate_hidden(common, coded, n, None, shared)
        return hidden, shared

    def _outputs(self, w: Part, hidden: tuple[Coded, Coded], lists: Lists):
        """Outputs float32 [entries + rows, H]; the launch before, whose last part is the shared expert's, may be one that `ahead` asks for."""
        n, n_entries, n_out, own, common = self.n, self.n_entries, w.down.n_out, (w.down,), (w.shared_down,)
        outputs = self.work.get("expert outputs", (n_entries + n) * n_out)
        ahead = self._is_few((w.shared_gate, w.shared_up))
        if self._is_one_launch(own, common):
            self.add(launch_down(self.device, Experts(n, lists, own, common, n_entries), hidden[0], outputs, ahead=ahead))
            return outputs
        if self._is_few(own):
            self.add(launch_down(self.device, Experts(n, lists, own, None), hidden[0], outputs, ahead=ahead))
        else:
            self._listed(w.down, hidden[0], self._own_rows(lists), outputs)
        shared = outputs[n_entries * n_out :]
        if self._is_few(common):
            self.add(launch_down(self.device, Experts(n, lists, None, common), hidden[1], shared))
        else:
            self.add(products.dense(self.device, w.shared_down, hidden[1], n, shared))
        return outputs

    def _is_few(self, matrices: tuple[Packed, ...]) -> bool:
        """Whether the kernels of few rows take a window's matrices, which must be of one format."""
        return self.n <= PLACES and not self.taps.is_apart and len({m.type_id for m in matrices}) == 1 and expert_products.fits(self.device, matrices[0], self.n)

    def _is_one_launch(self, own: tuple[Packed, ...], common: tuple[Packed, ...]) -> bool:
        """Whether the shared expert goes with the listed ones: the same shape."""
        alike = len({(m.n_in, m.n_out) for m in (*own, *common)}) == 1
        return alike and self._is_few(own) and self._is_few(common)

    def _own_rows(self, lists: Lists) -> Lists:
        """The lists of a product whose activation rows are the entries' own."""
        rows = self.work.constant(f"own rows {self.n_entries}", np.arange(self.n_entries, dtype=np.int32))
        return replace(lists, entry_rows=rows)

    def _separate_hidden(self, pair: tuple[Packed, Packed], coded: Coded, n_entries: int, lists: Lists | None, into: Coded) -> None:
        gate, up = (self.work.get(f"experts {part}", n_entries * pair[0].n_out) for part in ("gate", "up"))
        for matrix, out in zip(pair, (gate, up), strict=True):
            if lists is None:
                self.add(products.dense(self.device, matrix, coded, self.n, out))
            else:
                self._listed(matrix, coded, lists, out)
        self.add(launch_activation(self.device, gate, up, n_entries, pair[0].n_out, gate, into))
        if lists is not None and self.tier is not None and self.tier.has_jobs:
            return  # what the pool computes of these rows is never on the card
        point, place = ("moe.shared.hidden", None) if lists is None else ("moe.hidden", self._of_entries)
        self.taps.see(point, self.layer, gate, n_entries, pair[0].n_out, place, lambda: [products.code(self.device, gate, into, n_entries)])
        self.taps.see_coded(point, self.layer, into, n_entries, place)

    def _of_entries(self, window: Window, kept: np.ndarray) -> Place:
        """Whose the entries are: the row and the expert of each, from the router's choice on the card."""
        ids, places = (fetched(array, self.n_entries) for array in (self.work.get("ids", self.n_entries, np.int32), self.entry_of))
        rows, parts = np.zeros(self.n_entries, np.int32), np.zeros(self.n_entries, np.int32)
        rows[places] = np.arange(self.n_entries, dtype=np.int32) // self.config.n_used
        parts[places] = ids
        return Place(rows=rows, parts=parts)

    def _listed(self, matrix: Packed, coded: Coded, lists: Lists, out) -> None:
        launch = products.listed if self.n <= PLACES else products.listed_tiled
        self.add(launch(self.device, matrix, coded, lists, out))


def _from(coded: Coded, first: int) -> Coded:
    """The coded rows from row `first` on."""
    n, groups = coded.n, coded.n // 32
    return Coded(
        coded.codes[first * n :], coded.turned[first * n :], coded.scales[first * groups :], coded.sums[first * groups :], coded.n_rows - first, n
    )
