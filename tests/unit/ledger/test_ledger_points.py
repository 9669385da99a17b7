"""The dataflow table: complete, in order, and true about where things are computed."""

import re
from pathlib import Path

import pytest

from harness.ledger.points import POINTS, RANKS, TABLE, TOKENS, in_words, point_named, points_of_level, rank_of
from tests.unit.ledger.ledger_runs import recorded, requests

ROOT = Path(__file__).resolve().parents[3]
DEEP = requests(lengths=(264,), max_new=2)
"""Past the width of the selection, so that the indexer's points are shown."""


def named_inputs(point):
    return [given.lstrip("=").partition("<")[0] for given in point.inputs if given not in ("residual", "=residual")]


def test_names_are_distinct():
    assert len(POINTS) == len(TABLE)


@pytest.mark.parametrize("point", TABLE, ids=lambda point: point.name)
def test_inputs_are_points_and_those_of_the_same_row_stand_above(point):
    for given in point.inputs:
        name, _, back = given.lstrip("=").partition("<")
        if name == "residual":
            continue
        assert name in POINTS
        looks_back = back or (given.startswith("=") and point.name.endswith(".read"))
        assert looks_back or rank_of(name, 0) < rank_of(point.name, 0)


@pytest.mark.parametrize("point", TABLE, ids=lambda point: point.name)
def test_the_source_is_where_the_table_says(point):
    path, _, names = point.source.partition(": ")
    text = (ROOT / path).read_text()
    for name in names.split(", "):
        assert re.search(rf"^ *(def|class) {name}\b", text, re.M), name


def test_every_point_is_shown_by_a_run_and_none_is_missing_from_the_table():
    shown = set(recorded(DEEP, kv="int8", layer_split=(6,), split_device=(0,)).names)
    assert shown == set(POINTS)


def test_a_point_without_inputs_is_a_token():
    assert [point.name for point in TABLE if not point.inputs] == [TOKENS]


def test_levels_hold_more_and_more():
    assert points_of_level(0) == {"logits"}
    assert points_of_level(1) == {"logits", "embed", "hand_off", "moe.residual"}
    assert points_of_level(2) == points_of_level(3) == set(POINTS)


def test_rows_begin_with_the_embedding_and_end_with_the_logits():
    places = [rank_of("embed", -1), rank_of("gdn.scan", 0), rank_of("moe.residual", 0), rank_of("attention.normed", 1), rank_of("logits", -1)]
    assert places == sorted(places)
    assert len(RANKS) == len(TABLE)


def test_a_point_that_the_table_lacks_stands_last_in_its_layer_by_its_own_name():
    assert point_named("new.point").words == "new.point"
    assert rank_of("moe.residual", 3) < rank_of("new.point", 3) < rank_of("attention.normed", 4)
    assert in_words("gdn.scan", 5) == "gated delta net: recurrent scan, layer 5"
