"""Executors with a tier over the tests' model, and engines over the shipped one."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from strata.batch.engine import Engine
from strata.batch.requests import Request
from strata.batch.settings import EngineSettings
from strata.cpu_pool.arena import COPIES, FILE, MappedArena
from strata.experts.residency import Residency
from strata.host.executor import HostExecutor
from strata.host.expert_memory import ExpertMemory
from strata.split.host_tier import HostTier
from strata.split.tier_opening import banks_of
from tests.unit.harness.scopes import shipped
from tests.unit.host.engine_steps import new_executor

PROMPTS = 3


class RamArena(MappedArena):
    """Every expert in a copy of its own, as a resident RAM mode has them; remembers exchanges."""

    mode = "resident"

    def __init__(self, banks) -> None:
        super().__init__(banks)
        self.exchanged, self._copies = [], {place: bank.copy() for place, bank in banks.of.items()}

    def source(self, layer: int, expert: int) -> tuple[str, int]:
        """Every third expert is in the file, the others in the copies."""
        return (FILE if expert % 3 == 0 else COPIES), expert

    def bank(self, source: str, layer: int, part: str) -> np.ndarray:
        return self._copies[layer, part] if source == COPIES else super().bank(source, layer, part)

    def exchange(self, layer, leaves, comes, blobs) -> bool:
        self.exchanged.append((layer, leaves, comes))
        for part, blob in blobs.items():
            assert blob.tobytes() == super().expert(layer, part, comes).tobytes(), "what lay in the slot is the one that leaves it"
        return True


def tiered(mode: str, held: Iterable[tuple[int, int]], share: int = 0, arena_type=MappedArena) -> HostExecutor:
    """An executor of all layers whose cache holds some experts; `share` in 256ths of the others is fetched."""
    executor = new_executor(mode, "f16")
    config = executor.config
    layers = {layer.index: layer.moe for layer in executor.placed.layers}
    pairs = np.array(list(held), np.int32).reshape(-1, 2)
    arena = arena_type(banks_of(layers))
    memory = ExpertMemory(executor.device, layers, max(1, len(pairs)), config.n_experts, arena.expert)
    tier = HostTier("host:0", layers, Residency(config.n_layers, config.n_experts, max(1, len(pairs))), memory, arena, share)
    tier.fill(pairs)
    executor.tier = tier
    return executor


def requests(max_new: int = 10, n: int = PROMPTS) -> list[Request]:
    """The first tokens of some shipped prompts."""
    return [Request(item.prompt[:20], max_new) for item in shipped()[1].prompts[:n]]


def open_engine(**settings) -> Engine:
    return Engine(shipped()[0], EngineSettings(context=128, **settings))


def digests(batch) -> list[list[str]]:
    return [[emitted.row.digest for emitted in answer.emitted] for answer in batch.answers]


def answered(**settings):
    """(digests, counters, notes) of the requests together in one engine."""
    with open_engine(**settings) as engine:
        batch = engine.generate(requests())
    return digests(batch), batch.counters, batch.notes


PROFILE = Path(__file__).parents[3] / "fixtures" / "strata-mini-mix" / "strata-mini-profile.json"
