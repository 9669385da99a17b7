"""A card that is not there: a host device that counts memory as a card does, with an executor that reads a `CardTier` as cards do.

Experts that the tier fetches are read at the addresses in `sources`; those that it misses are sent to its jobs with rows as the router
saw them.  Everything above the executor is the code that serves cards.
"""

import ctypes
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np

from strata.cpu_pool.arena import PARTS
from strata.experts.dispatch import dispatch
from strata.host.device import HostDevice
from strata.host.executor import HostExecutor
from strata.host.expert_memory import ExpertMemory
from strata.host.expert_parts import ExpertPart
from strata.host.experts import activate
from strata.host.matrix import Activations, Entries
from strata.host.placed import place_stage
from strata.split import card_opening, opening
from strata.split.stages import Stage
from tests.unit.harness.scopes import shipped
from tests.unit.tiers.opened import digests, open_engine

TOTAL = 1 << 30


class StandInCard(HostDevice):
    """Registers host memory, `refuses` none of it or all; `registered` is what it had locked."""

    kind, why_not_registered = "cuda", ""
    locked: dict[int, str] = {}
    """Addresses of what any card has locked, with its name."""

    def __init__(self, name: str, threads: int, total_bytes: int, refuses: bool) -> None:
        super().__init__(name, None, threads)
        self.card, self.refuses, self.registered = SimpleNamespace(total_bytes=total_bytes), refuses, {}

    def attach(self) -> None:
        """Do nothing."""

    def memory(self) -> SimpleNamespace:
        return SimpleNamespace(free_bytes=self.card.total_bytes - self.taken_bytes)

    def register(self, array: np.ndarray) -> int | None:
        if self.refuses:
            self.why_not_registered = "NO_LUCK"
            return None
        address = array.ctypes.data
        assert address % 4096 == 0
        if self.locked.setdefault(address, self.name) == self.name:
            assert not any(address < at + size and at < address + array.size for at, size in self.registered.items())
            self.registered[address] = array.size
        return address

    def unregister(self, array: np.ndarray) -> None:
        if self.registered.pop(array.ctypes.data, None) is not None:
            del self.locked[array.ctypes.data]


class StandInMemory(ExpertMemory):
    """Slots and ring; `fetch` reads at addresses."""

    def fetch(self, place: int, addresses: np.ndarray, sizes: list[int]) -> None:
        at = place * self.slot_bytes
        for address, size in zip(addresses.tolist(), sizes, strict=True):
            self.ring[at : at + size] = np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8)
            at += size


class StandInExecutor(HostExecutor):
    """Computes a layer's routed experts by the tables of a `CardTier`."""

    def _routed(self, layer, placed, x: Activations, ids: np.ndarray):
        tier, is_prompt = self.tier, int(self.window.is_prompt)
        if tier is None:
            return super()._routed(layer, placed, x, ids)
        self.routed[is_prompt, layer] += np.bincount(ids.reshape(-1), minlength=self.config.n_experts).astype(np.int32)
        plan = dispatch(ids, tier.residency.slot_of[layer], tier.sources[layer, :, 0] != 0, tier.share, tier.memory.n_places)
        tier.served[is_prompt] += plan.entries_by_place()
        cached, done = plan.n_cached, plan.n_cached + plan.n_fetched
        sizes = [getattr(tier.layers[layer], part).expert_bytes for part in PARTS]
        for place, expert in enumerate(plan.experts[cached:done].tolist()):
            tier.memory.fetch(place, tier.sources[layer, expert], sizes)
        outputs = np.empty((ids.size, self.config.hidden), np.float32)
        parts = [ExpertPart(*tier.memory.cached(layer), plan.places[:cached], 0, cached), ExpertPart(*tier.memory.staged(layer), plan.places[cached:done], cached, done)]
        self._on_card(layer, plan, [part for part in parts if part.last > part.first], x, outputs)
        first = plan.starts[done]
        if plan.n_jobs:
            with tier.prompt_pool if is_prompt else tier.pool:
                tier.jobs.compute(layer, plan.experts[done:], plan.starts[done:] - first, plan.rows[first:], x.values, outputs[first:], bool(is_prompt))
        return outputs, plan.entry_of

    def _on_card(self, layer: int, plan, parts, x: Activations, outputs: np.ndarray) -> None:
        entries, width = Entries(plan.experts, plan.starts, plan.rows), self.placed.of(layer).moe.gate.n_out
        gates, ups = np.zeros((len(outputs), width), np.float32), np.zeros((len(outputs), width), np.float32)
        for part in parts:
            part.gate.times(x, True, self.control, part.entries(entries, entries.rows), gates)
            part.up.times(x, True, self.control, part.entries(entries, entries.rows), ups)
        activate(gates, ups)
        hidden, lines = Activations(gates, self.control, np.full(len(gates), 32, np.int32)), np.arange(len(gates), dtype=np.int32)
        for part in parts:
            part.down.times(hidden, True, self.control, part.entries(entries, lines), outputs)


@contextmanager
def cards(monkeypatch, total_bytes: int = TOTAL, refuses: bool = False):
    """Let `cuda:N` be such cards; gives the list of those opened."""
    opened: list[StandInCard] = []
    on_host = opening._open_device

    def open_device(index, name, threads):
        if name.kind != "cuda":
            return on_host(index, name, threads)
        opened.append(StandInCard(f"cuda:{name.index}", threads, total_bytes, refuses))
        return opened[-1]

    def open_stage(model, resolved, plan, device):
        placed = place_stage(model.weights, model.config, plan.first, plan.last)
        device.take(f"weights of {placed.name}", placed.weight_bytes - (0 if resolved.tier.cache is None else placed.routed_bytes))
        executor = StandInExecutor(device, model.config, placed, resolved.mode, resolved.kv, resolved.n_slots, resolved.context)
        drafts = opening._open_drafts(model, resolved, placed, device) if resolved.drafts.has_layer and placed.output is not None else None
        return Stage(plan, executor, resolved.n_slots, drafts)

    with monkeypatch.context() as patched:
        patched.setattr(opening, "_open_device", open_device)
        patched.setattr(opening, "_open_card_stage", open_stage)
        patched.setattr(card_opening, "card_memory", StandInMemory)
        yield opened


def answered_on(monkeypatch, requests, devices: str = "cuda:0", refuses: bool = False, **settings):
    """(digests, counters, cards) of requests on stand-in cards."""
    with cards(monkeypatch, refuses=refuses) as found, open_engine(devices=devices, **settings) as engine:
        batch = engine.generate(requests)
        tables = [(tier.residency.n_slots, tier.share, tier.n_fetchable if hasattr(tier, "n_fetchable") else None) for tier in engine.tiers.devices]
        held = [dict(card.registered) for card in found]
    assert all(not card.registered for card in found), "what was registered is given back"
    return digests(batch), batch.counters, tables, held


N_PAIRS = shipped()[0].config.n_layers * shipped()[0].config.n_experts
