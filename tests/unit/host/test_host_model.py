"""The whole model on the host, bit by bit, against the executor written from docs/NUMERICS.md: every block of every layer."""

import numpy as np
import pytest

from tests.unit.host.engine_steps import first_difference, new_executor, new_stranger, one_slot, prompt, run_points

N = 13
"""Tokens of the run: three blocks of cells are complete, and all windows beyond seven cells choose."""


def joined(*windows):
    """The points of consecutive windows of one session, rows one after the other."""
    return [(parts[0][0], parts[0][1], np.concatenate([values for _, _, values in parts])) for parts in zip(*windows, strict=True)]


@pytest.fixture
def executor(request):
    made = new_executor(*request.param)
    yield made
    made.device.close()


@pytest.mark.parametrize(
    ("executor", "mode", "kv"),
    [(("canonical", "f16"), "canonical", "f16"), (("canonical", "int8"), "canonical", "int8"), (("wide", "f32"), "wide", "f32")],
    indirect=["executor"],
)
def test_every_block_of_every_layer_has_the_strangers_bits(executor, mode, kv):
    """The engine reads in three windows, the stranger in one."""
    tokens = prompt(N)
    windows = [run_points(executor, one_slot(tokens[at : at + n], at)) for at, n in ((0, 1), (1, 8), (9, 4))]
    assert first_difference(joined(*windows), new_stranger(mode, kv).run(tokens)) is None


@pytest.mark.parametrize("executor", [("grouped", "f16")], indirect=True)
def test_the_grouped_mode_is_the_one_that_is_documented(executor):
    tokens = prompt(5)
    assert first_difference(run_points(executor, one_slot(tokens)), new_stranger("grouped", "f16").run(tokens)) is None


@pytest.mark.parametrize("executor", [("canonical", "f16")], indirect=True)
def test_another_mode_is_told_apart_where_it_begins(executor):
    tokens = prompt(3)
    found = run_points(executor, one_slot(tokens))
    assert first_difference(found, new_stranger("wide", "f32").run(tokens)).startswith("attention of layer 0")
    assert first_difference(found, new_stranger("grouped", "f16").run(tokens)).startswith("moe of layer 0")


@pytest.mark.parametrize("executor", [("canonical", "f16")], indirect=True)
def test_a_verified_window_and_its_commit_continue_as_the_stranger_does(executor):
    """Six rows are run, two of them kept; what follows must know nothing of the others."""
    tokens = prompt(N)
    expected = new_stranger("canonical", "f16").run(tokens)
    start = run_points(executor, one_slot(tokens[:4]))
    tried = one_slot([*tokens[4:6], 9, 8, 7, 6], 4, keep=False)
    verified = run_points(executor, tried)
    executor.commit(tried, np.array([2], np.int32))
    rest = run_points(executor, one_slot(tokens[6:], 6))
    kept = [(name, layer, values[:2]) for name, layer, values in verified]
    assert first_difference(joined(start, kept, rest), expected) is None
