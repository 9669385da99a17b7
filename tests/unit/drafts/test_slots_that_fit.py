"""A count of slots is never refused: as many run as memory holds, said in a note."""

from types import SimpleNamespace

import pytest

from strata.batch.fitting import fit
from strata.batch.requests import Request
from strata.batch.settings import EngineSettings, resolve
from strata.errors import DeviceMemoryError
from strata.split.budget import device_bytes
from tests.unit.drafts.conftest import CONTEXT, bits

PROPOSALS = {"mtp": True, "batch_mtp": True}
TWO_HOSTS = {"devices": "host,host", "layer_split": (6,)}


def placing(room: int, tried: list[int]):
    """Return what places as many slots as there is room for."""

    def place(resolved):
        tried.append(resolved.n_slots)
        if resolved.n_slots > room:
            raise DeviceMemoryError("host[0]", "sessions", resolved.n_slots, room)
        return SimpleNamespace(n=resolved.n_slots)

    return place


@pytest.mark.parametrize(
    ("asked", "more", "room", "n_slots", "n_groups"),
    [(4, {}, 9, 4, 1), (4, {}, 3, 3, 1), (4, {}, 1, 1, 1), (12, {}, 5, 5, 1), (12, PROPOSALS, 12, 12, 1), (12, PROPOSALS, 9, 9, 1), (12, PROPOSALS, 1, 1, 1),
     (8, {"batch_groups": 4, **TWO_HOSTS}, 7, 7, 1), (8, {"batch_groups": 4, **TWO_HOSTS}, 6, 6, 3), (8, {"batch_groups": 0, **TWO_HOSTS}, 5, 5, 1)],
    ids=str,
)
def test_slots_are_cut_to_what_there_is_room_for(model, asked, more, room, n_slots, n_groups):
    tried: list[int] = []
    resolved, placed = fit(EngineSettings(batch=asked, **more), model.config, 2, placing(room, tried))
    assert (resolved.n_slots, resolved.n_groups, placed.n) == (n_slots, n_groups, n_slots)
    assert tried == list(range(tried[0], n_slots - 1, -1))
    cut = [note for note in resolved.notes if "memory holds no more" in note]
    assert len(cut) == (n_slots < tried[0])
    assert ("one request at a time" in "".join(cut)) is (n_slots == 1 < tried[0])
    assert resolved.drafts.batch_mtp is ("batch_mtp" in more and n_slots > 1)


def test_one_slot_that_does_not_fit_is_an_error(model):
    with pytest.raises(DeviceMemoryError):
        fit(EngineSettings(batch=3), model.config, 2, placing(0, []))


def budget_for(model, slots: int, **settings) -> str:
    """Return a host device with just the bytes that so many slots take."""
    resolved = resolve(EngineSettings(batch=slots, context=CONTEXT, **settings), model.config, 1)
    return f"host:{device_bytes(model, resolved)[0].total}"


def requests_of(prompts, count: int) -> list[Request]:
    kinds = ("chat", "code", "prose", "edit")
    return [Request(prompts[kinds[i % 4]][: 12 + i], 9 + i % 3) for i in range(count)]


@pytest.mark.parametrize(("asked", "fitting", "settings"), [(4, 2, {}), (12, 9, PROPOSALS), (3, 1, PROPOSALS)], ids=str)
def test_an_engine_on_a_small_device_runs_what_fits_and_answers_alike(model, run, prompts, plain, asked, fitting, settings):
    requests = requests_of(prompts, fitting + 2)
    alone = {name: value for name, value in settings.items() if fitting > 1 or name != "batch_mtp"}
    batch = run(requests, batch=asked, devices=budget_for(model, fitting, **alone), **settings)
    assert [bits(a) for a in batch.answers] == [bits(plain(r)) for r in requests]
    assert any(note.startswith(f"batch={asked} runs as ") for note in batch.notes)
    assert (batch.counters["windows_with_company"] > 0) is (fitting > 1)
    assert (batch.counters["rotated_windows"] > 0) is (fitting > 4)
