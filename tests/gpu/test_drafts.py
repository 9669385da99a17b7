"""The draft layer on a card against the host's, on the shipped model's weights: cells, chains, and whole engines."""

import json
from pathlib import Path

import numpy as np
import pytest

from strata.batch.engine import Engine
from strata.batch.requests import Request
from strata.batch.settings import EngineSettings
from strata.errors import DeviceError
from strata.model.model import load_model
from strata.sampling.settings import Sampling
from tests.gpu.geometry import flat

FIXTURE = Path(__file__).resolve().parents[2] / "fixtures" / "strata-mini-mix"
LENGTHS = (1, 63, 64, 65, 129, 7, 300, 2)
"""Cells of eight slots: around the border of a split of 64, and past a class of 256."""


@pytest.fixture(scope="module")
def model():
    return load_model(FIXTURE)


@pytest.fixture(scope="module")
def prompts():
    kinds = {}
    for prompt in json.loads((FIXTURE / "prompts.json").read_text()):
        kinds.setdefault(prompt["kind"], tuple(prompt["ids"])[:90])
    return tuple(kinds.values())


def pair(card, model, kv="f16", n_slots=8, context=512):
    from tests.gpu.checks_drafts import Pair

    return Pair(card, model, kv, n_slots, context, n_threads=4)


@pytest.mark.parametrize("kv", ["f16", "int8"])
def test_cells_and_chains_have_the_bits_of_the_host(kv, card, model):
    """Whole prompts, chains of one to eight slots, then verify windows that keep some rows, twice, from graphs."""
    with pair(card, model, kv) as both:
        for slot, n in enumerate(LENGTHS):
            both.read(slot, 0, n)
        for n in range(1, 9):
            both.chain(list(range(n)), 1)
        lengths = list(LENGTHS)
        for turn in range(3):
            window = both.hold(*((slot, lengths[slot], 2) for slot in (6, 1, 3, 0)))
            kept = [1 + (turn + i) % 2 for i in range(4)]
            both.build((window, kept))
            for slot, n in zip((6, 1, 3, 0), kept, strict=True):
                lengths[slot] += n
            both.chain([1, 0, 6], 4)
            both.chain([3], 7)
        assert both.drafts.graphs.n_replays > both.drafts.graphs.n_captures


@pytest.mark.parametrize("pairs", [1, 40])
def test_splits_in_turn_and_side_by_side_give_the_same_bits(pairs, card, model, monkeypatch):
    monkeypatch.setattr("strata.cuda.drafting.record_drafts.MOST_PAIRS", pairs)
    with pair(card, model) as both:
        both.read(0, 0, 400)
        both.read(5, 0, 200)
        both.chain([5, 0], 3)


def test_every_number_of_kept_rows_gives_the_cells_of_the_host(card, model):
    with pair(card, model) as both:
        at = 0
        for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 33, 1, 2):
            both.read(2, at, n)
            both.chain([2], 2)
            at += n


def test_windows_wait_and_are_made_together(card, model):
    """Rows of several windows and slots in one step; a window is forgotten, and its slot then lacks positions."""
    with pair(card, model) as both:
        first, lost, second = both.hold((0, 0, 5), (1, 0, 3)), both.hold((0, 5, 8)), both.hold((0, 13, 4), (1, 3, 4))
        both.host.forget(lost)
        both.drafts.forget(lost)
        both.build((first, [5, 3]), (second, [2, 0]))
        both.chain([0, 1], 3)
        both.read(1, 9, 70)
        both.chain([1, 0], 2)


def test_held_rows_move_when_they_grow(card, model, monkeypatch):
    monkeypatch.setattr("strata.cuda.drafting.held_rows.LEAST", 16)
    with pair(card, model) as both:
        window = both.hold((0, 0, 8))
        both.build((window, [8]))
        one, other = both.hold((0, 8, 8)), both.hold((1, 0, 40))
        assert both.drafts.held.generation == 1
        both.build((one, [3]))
        both.build((other, [40]))
        both.chain([0, 1], 2)


def test_a_cleared_slot_a_copied_slot_and_poison(card, model):
    with pair(card, model) as both:
        for slot, n in ((0, 70), (1, 20)):
            both.read(slot, 0, n)
        waiting = both.hold((1, 20, 2))
        for layer in (both.host, both.drafts):
            layer.clear(1)
            layer.copy_slot(0, 3)
        assert waiting not in both.drafts._runs
        both.drafts.poison(0, 70)
        both.drafts.poison(1, 0)
        both.read(1, 0, 3)
        both.chain([3, 1, 0], 3)


def test_chains_end_where_the_context_ends(card, model):
    with pair(card, model, n_slots=1, context=80) as both:
        both.read(0, 0, 78)
        both.chain([0], 3)
        with pytest.raises(DeviceError, match="context ends at 80"):
            both.drafts.propose([0], [1])


def test_logits_of_an_older_proposal_are_not_given(card, model):
    with pair(card, model) as both:
        both.read(0, 0, 4)
        made = both.drafts.propose([0])
        both.drafts.propose([0], made.tokens)
        with pytest.raises(DeviceError, match="proposed again"):
            _ = made.logits


def test_proposals_do_not_wear_out(card, model):
    """The newest cell gives the same proposal again and again."""
    with pair(card, model) as both:
        both.read(0, 0, 10)
        made = [both.drafts.propose([0]) for _ in range(3)]
        assert len({(int(m.tokens[0]), float(m.probabilities[0])) for m in made}) == 1


def test_a_changed_cell_is_noticed(card, model):
    with pair(card, model) as both:
        both.read(0, 0, 5)
        codes = both.drafts.cells.attention.k_codes.copy_to_host()
        codes[7] ^= 1
        both.drafts.cells.attention.k_codes.copy_to_device(codes)
        with pytest.raises(AssertionError, match="k_codes of slot 0"):
            both.compare_cells()


def test_a_changed_row_is_noticed(card, model):
    with pair(card, model) as both:
        both.read(0, 0, 5)
        newest = both.drafts.cells.newest.copy_to_host()
        newest[3] += np.float32(1)
        both.drafts.cells.newest.copy_to_device(newest)
        with pytest.raises(AssertionError, match="logits"):
            both.chain([0], 1)


def test_places_lists_and_moves(card):
    from strata.cuda.drafting.draft_cells import DraftCells, launch_list, launch_move, launch_note
    from tests.gpu.geometry import SMALL, read, run

    cells = DraftCells(card, SMALL, "f16", 3, 600)
    slots, counts = np.int32([2, 0, 2, 2]), np.int32([1, 1, 2, 3])
    positions = np.int32([4, 0, 9, 599])
    arrays = [flat(card, a) for a in (slots, positions, counts)]
    run(card, launch_note(card, cells, *arrays, 4))
    chosen = flat(card, np.full((2, 512), -7, np.int32))
    asked = [flat(card, np.int32(a)) for a in ([2, 0], [300, 1], [4, 2])]
    run(card, launch_list(card, cells, *asked, 2, 512, chosen))
    found = read(chosen, 2, 512)
    assert found[0, :4].tolist() == [4, 9, 599, 300] and found[1, :2].tolist() == [0, 1]
    assert (found[0, 4:] == -7).all() and (found[1, 2:] == -7).all()
    assert read(cells.places, 3, 600)[[2, 0], [3, 1]].tolist() == [300, 1]
    source, into = flat(card, np.arange(1200, dtype=np.float32)), flat(card, np.zeros(1200, np.float32))
    run(card, launch_move(card, source, flat(card, np.int32([2, 0, 1])), into, flat(card, np.int32([0, -1, 3])), 3, 300))
    assert np.array_equal(read(into, 4, 300), np.float32([np.arange(600, 900), np.zeros(300), np.zeros(300), np.arange(300, 600)]))


SOLO = {"mtp": True, "spec_policy": "full", "spec": 6}


@pytest.mark.parametrize(
    "changes",
    [SOLO, {**SOLO, "kv": "int8"}, {**SOLO, "prefill": 7, "spec_min_p": 0.4}, {**SOLO, "suffix_draft": 3}, {**SOLO, "coupled_drafts": True},
     {**SOLO, "batch": 5, "batch_mtp": True}],
    ids=["chain", "int8", "chunks", "suffix", "coupled", "batch-mtp"],
)
def test_an_engine_on_a_card_drafts_and_answers_as_on_the_host(changes, model, prompts):
    """Answers, and every counter of drafts: the same proposals were made and accepted."""
    asked = [Request(ids, 24, sampling=Sampling(temperature=0.8, seed=i) if i % 2 else Sampling()) for i, ids in enumerate(prompts)]
    found = []
    for devices in ("host", "cuda:0"):
        with Engine(model, EngineSettings(**{"context": 256, "devices": devices, **changes})) as engine:
            batch = engine.generate(asked)
        rows = [[(e.pick, e.row.digest) for e in answer.emitted] for answer in batch.answers]
        found.append((rows, [answer.error for answer in batch.answers], {k: v for k, v in batch.counters.items() if "draft" in k or "mtp" in k}))
    assert found[0] == found[1]
    assert found[1][2]["mtp_accepted"] > 0


def test_memory_is_taken_by_name_and_too_little_is_an_error(model):
    from strata.cuda.card.device import CudaDevice, allocated_bytes
    from tests.gpu.checks_drafts import Pair

    device = CudaDevice(0)
    with Pair(device, model, "f16", 2, 256) as both:
        assert {"draft layer", "draft cells", "draft rows held: 512"} <= device.taken.keys()
        assert device.taken["draft cells"] >= 2 * both.drafts.cell_bytes_per_slot
        device.budget_bytes = device.taken_bytes + allocated_bytes(600 * 4 * model.config.residual_width) + 512
        with pytest.raises(DeviceError, match="draft rows held"):
            both.hold((0, 0, 600))
    device.close()
