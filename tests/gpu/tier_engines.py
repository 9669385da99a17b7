"""Engines of the shipped model on a card that holds some of its experts, and what they are asked.  Does not know: what is expected."""

HALF, TENTH = 384, 77
RAM = {"resident_experts": True}
STILL = {"adapt_every": 0}
ROUNDS = {"adapt_every": 1, "adapt_min_gain": 0.0}


def asked(max_new: int = 10, n: int = 3):
    from tests.unit.tiers.opened import requests

    return requests(max_new, n)


def opened(**settings):
    from tests.unit.tiers.opened import open_engine

    return open_engine(**{"devices": "cuda:0", **settings})


def answered(engine, requests):
    from tests.unit.tiers.opened import digests

    batch = engine.generate(requests)
    return digests(batch), batch.counters
