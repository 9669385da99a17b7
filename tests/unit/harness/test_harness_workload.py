"""Prompts are read from files or refused with the entry's number; a mix takes the kinds in turn."""

import json

import pytest

from harness.workload import Item, Workload, mix, read_prompts
from strata.errors import UsageError

ITEMS = tuple(Item(f"{kind}-{i}", (i,), 0) for i, kind in enumerate(["chat"] * 5 + ["code"] * 3 + ["long"]))


def written(tmp_path, content):
    """A prompts file with the content, as JSON unless it is text."""
    path = tmp_path / "prompts.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_prompts_are_lists_of_ids_with_or_without_a_kind(tmp_path):
    items = read_prompts(written(tmp_path, [{"kind": "chat", "ids": [1, 2]}, [3]]))
    assert [(item.label, item.kind, item.prompt) for item in items] == [("chat-0", "chat", (1, 2)), ("prompt-1", "prompt", (3,))]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "not JSON"),
        ({"ids": [1]}, "not a list"),
        ([], "at least one prompt"),
        ([[1], {"kind": "chat"}], "entry 1"),
        ([{"text": "no tokenizer here"}], "entry 0"),
        ([[1, "2"]], "entry 0"),
        ([[True]], "entry 0"),
    ],
)
def test_a_file_that_holds_no_prompts_is_refused_with_the_place(tmp_path, content, why):
    with pytest.raises(UsageError, match=why):
        read_prompts(written(tmp_path, content))


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(UsageError, match="absent.json: No such file"):
        read_prompts(tmp_path / "absent.json")


def test_a_mix_takes_the_kinds_in_turn():
    assert [item.kind for item in mix(ITEMS, 7, seed=1)] == ["chat", "code", "long", "chat", "code", "chat", "code"]


def test_fewer_items_are_the_first_of_more():
    assert mix(ITEMS, 3, seed=4) == mix(ITEMS, 8, seed=4)[:3]


def test_a_mix_is_drawn_by_the_seed():
    assert mix(ITEMS, 4, seed=1) == mix(ITEMS, 4, seed=1)
    assert len({mix(ITEMS, 4, seed=seed) for seed in range(9)}) > 1


def test_more_items_than_there_are_give_all_of_them():
    assert sorted(item.label for item in mix(ITEMS, 99, seed=1)) == sorted(item.label for item in ITEMS)


def test_lengths_are_given_in_turn():
    assert [item.max_new for item in Workload(ITEMS[:5]).with_lengths([7, 2]).items] == [7, 2, 7, 2, 7]
