"""The draft layer at toy size against the host's, the rows that wait for it, and the Python around its launches in an engine."""

from pathlib import Path

import numpy as np
import pytest

from harness.stress import put_stress
from strata.batch.engine import Engine
from strata.batch.requests import Request
from strata.batch.settings import EngineSettings, resolve
from strata.cuda.card.device import CudaDevice
from strata.cuda.drafting.held_rows import HeldRows
from strata.errors import DeviceError, DeviceMemoryError
from strata.model.model import load_model
from strata.split.budget import device_bytes
from tests.gpu.checks_drafts import Pair
from tests.unit.model import synthetic

FIXTURE = Path(__file__).resolve().parents[3] / "fixtures" / "strata-mini-mix"
TOY = {
    "n_q_heads": 2, "n_kv_heads": 1, "head_dim": 32, "indexer_dim": 32, "n_indexer_heads": 1, "expert_ff": 32, "shared_ff": 32,
    "draft_token_ids": tuple(range(0, 64, 2)),
}


@pytest.fixture
def toy(tmp_path):
    return load_model(synthetic.build_with_draft(seed=3, **TOY).write(tmp_path / "toy.gguf"))


def test_cells_and_chains_have_the_bits_of_the_host(toy, card):
    """Two slots, one of which lacks a position; a verify window with a rejected row; a chain."""
    with Pair(card, toy, "f16", 2, 16) as pair:
        pair.read(1, 0, 1)
        window = pair.hold((0, 0, 1), (1, 3, 2))
        pair.build((window, [1, 1]))
        pair.chain([1, 0], 2)


def test_held_rows_grow_and_keep_what_they_hold(card):
    held = HeldRows(card, "held", 4, 3)
    rows = [np.full(4 * n, n, np.float32) for n in (2, 1, 3, 1)]
    first = held.keep(card.upload("rows", rows[0]), 2)
    second = held.keep(card.upload("rows", rows[1]), 1)
    assert (first, second, held.capacity, held.generation) == (0, 2, 3, 0)
    held.release(first)
    third = held.keep(card.upload("rows", rows[2]), 3)
    assert (third, held.capacity, held.generation) == (3, 6, 1)
    fourth = held.keep(card.upload("rows", rows[3]), 1)
    assert fourth == 0
    assert held.array.copy_to_host().reshape(-1, 4)[[0, 2, 3, 4, 5], 0].tolist() == [1, 1, 3, 3, 3]
    assert [purpose for purpose in card.taken if purpose.startswith("held")] == ["held: 6"]


def test_held_rows_that_do_not_fit_are_an_error_and_change_nothing():
    card = CudaDevice(0, 1024)
    held = HeldRows(card, "held", 4, 32)
    first = held.keep(card_rows(30), 30)
    with pytest.raises(DeviceMemoryError):
        held.keep(card_rows(30), 30)
    assert held.capacity == 32 and held.array.size == 128 and card.taken == {"held: 32": 512}
    held.release(first)
    assert held.keep(card_rows(30), 30) == 0


def card_rows(n: int):
    return CudaDevice(0).upload("rows", np.zeros(4 * n, np.float32))


def test_a_slot_without_cells_and_a_chain_past_the_context_are_refused(toy, card):
    with Pair(card, toy, "f16", 1, 4) as pair:
        with pytest.raises(DeviceError, match="no cell"):
            pair.drafts.propose([0])
        pair.drafts._counts[0], pair.drafts._position[0] = 1, 3
        with pytest.raises(DeviceError, match="context ends at 4"):
            pair.drafts.propose([0], [1])
        assert pair.drafts.has_tip(0, 3)


@pytest.fixture
def silent(monkeypatch):
    """Nothing is computed: memory starts as zeros and stays so, and all picks are the first."""
    honest = CudaDevice.empty

    def zeros(self, purpose, shape, dtype):
        array = honest(self, purpose, shape, dtype)
        array.copy_to_device(np.zeros(shape, dtype))
        return array

    monkeypatch.setattr(CudaDevice, "empty", zeros)
    monkeypatch.setattr("strata.cuda.card.launch.Launch.go", lambda self, stream=None: None)


def test_a_plan_names_what_the_draft_layer_takes():
    model = load_model(FIXTURE)
    (device,) = device_bytes(model, resolve(EngineSettings(devices="cuda:0", mtp=True, context=64), model.config, 1))
    purposes = dict(device.purposes)
    with Engine(model, EngineSettings(devices="cuda:0", mtp=True, context=64)) as engine:
        taken = engine.stages[-1].executor.device.taken
        assert {name: n for name, n in purposes.items() if name.startswith("draft")} == {
            name: taken[name] for name in ("draft layer", "draft cells", "draft rows held: 64")
        }


def test_stresses_reach_a_draft_layer_on_a_card(silent):
    settings = EngineSettings(devices="cuda:0", mtp=True, context=64, threads=1, spec_policy="full")
    with Engine(load_model(FIXTURE), settings) as engine:
        put_stress(("poison", "wrong-drafts"), engine.stages)
        batch = engine.generate([Request((788, 198, 1450, 7), 12)])
        assert not batch.answers[0].error and batch.counters["rows_rejected"] > 0
        keys = engine.draft_layer.cells.attention.k_codes.copy_to_host().reshape(64, -1).view(np.float16)
        made = engine.draft_layer._counts[0]
        assert np.isnan(keys[made:]).all() and 0 < made < 64


@pytest.mark.parametrize(
    ("devices", "changes", "counters"),
    [
        ("cuda:0", {}, {"mtp_accepted_3": 6, "draft_cells": 36}),
        ("cuda:0", {"batch": 5, "batch_mtp": True}, {"rotated_windows": 6, "mtp_accepted": 35}),
        ("cuda:0,cuda:0", {"layer_split": (6,), "kv": "int8", "coupled_drafts": True, "prefill": 2}, {"draft_cells": 36, "chunked_prompts": 3}),
        ("host,cuda:0", {"layer_split": (11,), "suffix_draft": 3}, {"decode_windows": 9}),
        ("cuda:0,cuda:0", {"layer_split": (6,), "batch": 2, "batch_groups": 2, "requests": 3}, {"mtp_accepted": 7}),
    ],
)
def test_an_engine_drafts_with_its_last_stage_on_a_card(devices, changes, counters, silent):
    model, changes = load_model(FIXTURE), dict(changes)
    n_requests = changes.pop("requests", 3 if "batch" not in changes else 7)
    settings = EngineSettings(**{"devices": devices, "mtp": True, "context": 128, "threads": 1, "spec_policy": "full", **changes})
    with Engine(model, settings) as engine:
        card, layer = engine.stages[-1].executor.device, engine.draft_layer
        assert {"draft layer", "draft cells", f"draft rows held: {128 * engine.resolved.n_slots}"} <= card.taken.keys()
        batch = engine.generate([Request((788, 198, 1450, 7 + i), 12) for i in range(n_requests)])
        assert not any(answer.error for answer in batch.answers)
        assert {name: batch.counters[name] for name in counters} == counters
        assert not layer._runs and not layer.held._runs, "rows are held that nobody will ask for"
        captures = layer.graphs.n_captures
        assert captures <= layer.graphs.n_replays
    assert not card.taken
