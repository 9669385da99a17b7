"""Engines of the shipped model whose experts do not all lie on the card: the bits of the host's engine without a tier, whatever moves.

Rounds, blocking and in steps, copies in RAM of every mode, shares given, probed and a request's own, prompts in chunks, drafts,
two stages on one card, a split with the host; and memory that adds up.
"""

from dataclasses import replace

import pytest

from strata.experts.residency import ABSENT
from strata.split import link_probe
from tests.gpu.tier_engines import HALF, RAM, ROUNDS, STILL, TENTH, answered, asked, opened


@pytest.fixture(scope="module")
def expected():
    with opened(devices="host") as engine:
        return answered(engine, asked())[0]


CASES = {
    "all": {"expert_cache": 0},
    "half": {"expert_cache": HALF, **STILL},
    "tenth": {"expert_cache": TENTH, **STILL},
    "one slot": {"expert_cache": 1, **STILL},
    "fetched": {"expert_cache": HALF, "pcie_frac": 1.0, **RAM, **STILL},
    "one slot, fetched": {"expert_cache": 1, "pcie_frac": 1.0, "arena_pin_gib": 0.0, **STILL},
    "some fetched, pinned": {"expert_cache": TENTH, "pcie_frac": 0.55, "arena_pin_gib": 0.0, **STILL},
    "probed": {"expert_cache": TENTH, **RAM, **STILL},
    "rounds": {"expert_cache": HALF, **ROUNDS},
    "rounds, fetched": {"expert_cache": HALF, "pcie_frac": 0.5, **RAM, **ROUNDS},
    "rounds in steps": {"expert_cache": HALF, "adapt_async": True, "pcie_frac": 0.5, **RAM, **ROUNDS},
    "slots, rounds": {"expert_cache": HALF, "batch": 3, "pcie_frac": 0.5, **RAM, **ROUNDS},
    "chunks": {"expert_cache": TENTH, "prefill": 9, "pcie_frac": 0.5, **RAM, **ROUNDS},
    "drafts": {"expert_cache": TENTH, "mtp": True, "pcie_frac": 0.5, **RAM, **ROUNDS},
    "two stages": {"expert_cache": TENTH, "layer_split": (5,), "split_device": (0,), "pcie_frac": 0.5, **RAM, **ROUNDS},
    "beside the host": {"expert_cache": TENTH, "devices": "cuda:0,host", "layer_split": (6,), "pcie_frac": 0.5, **RAM, **ROUNDS},
    "behind the host, in groups": {"expert_cache": TENTH, "devices": "host,cuda:0", "layer_split": (6,), "batch": 4, "batch_groups": 2, "pcie_frac": 0.5, **RAM},
}


@pytest.mark.parametrize("name", CASES)
def test_where_experts_lie_changes_no_bit(name, expected):
    settings = CASES[name]
    with opened(**settings) as engine:
        for _ in range(2):
            found, counters = answered(engine, asked())
            assert found == expected
    served = [counters[f"{place}_entries"] for place in ("vram", "pcie", "cpu")]
    assert served[0] > 0 or settings["expert_cache"] == 1
    assert name == "probed" or (served[1] > 0) == ("pcie_frac" in settings)
    assert (served[2] > 0) == (settings["expert_cache"] != 0) or settings.get("pcie_frac") == 1.0
    assert counters["adapt_swaps"] > 0 or settings.get("adapt_every") != 1


@pytest.mark.parametrize(("link", "pool", "share"), [(1.0, 3.0, 192), (3.0, 1.0, 64), (1.0, 0.0, 0)])
def test_a_share_is_what_the_probe_of_the_link_finds(link, pool, share, expected, monkeypatch):
    measured, times = link_probe._best, iter((link, pool))
    monkeypatch.setattr(link_probe, "_best", lambda work: (measured(work), next(times))[1])
    with opened(expert_cache=TENTH, **RAM, **STILL) as engine:
        found, counters = answered(engine, asked())
        tier = engine.tiers.devices[0]
        assert found == expected and tier.n_fetchable > 0
        assert tier.share == share and (counters["pcie_entries"] > 0) == (share > 0)


def test_swaps_leave_every_expert_where_the_tables_say():
    with opened(expert_cache=HALF, pcie_frac=0.5, **RAM, **ROUNDS) as engine:
        swaps = answered(engine, asked())[1]["adapt_swaps"]
        tier = engine.tiers.devices[0]
        assert swaps > 0 and ((tier.sources[:, :, 0] != 0) == (tier.residency.slot_of == ABSENT)).all()
        for slot, (layer, expert) in enumerate(tier.residency.held.tolist()):
            for part, blob in tier.memory.saved(layer, slot).items():
                assert blob.tobytes() == tier.arena.banks.of[layer, part][expert].tobytes()


def test_a_request_has_a_share_of_its_own(expected):
    with opened(expert_cache=HALF, pcie_frac=0.5, **RAM, **STILL) as engine:
        for share in (0.0, 1.0):
            found, counters = answered(engine, [replace(request, pcie_frac=share) for request in asked()])
            assert found == expected
            assert counters["pcie_entries"] == share * (counters["pcie_entries"] + counters["cpu_entries"])


@pytest.mark.parametrize("cache", [{}, {"expert_cache": TENTH}], ids=str)
def test_a_profile_counts_what_a_card_routes(tmp_path, cache):
    from strata.model.profile_file import read_profile
    from tests.unit.harness.scopes import shipped

    paths = [str(tmp_path / name) for name in ("host.json", "card.json")]
    for path, settings in zip(paths, ({"devices": "host"}, cache), strict=True):
        with opened(expert_profile_save=path, **settings) as engine:
            answered(engine, asked())
    host, card = (read_profile(path, shipped()[0].config) for path in paths)
    assert host.pairs.tolist() == card.pairs.tolist()


def test_auto_leaves_the_reserve_free():
    with opened(expert_cache=0, vram_reserve_mib=2000) as engine:
        assert engine.stages[0].executor.device.memory().free_bytes > 1900 << 20
