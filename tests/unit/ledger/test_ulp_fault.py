"""The planted fault: one bit of one element, where and when it is told, and nowhere else."""

import numpy as np
import pytest

from harness.faults.ulp import LARGEST, UlpFault, Where, flip, parse_where
from strata.errors import UsageError
from strata.rows import WHOLE, Place, Segment, Window

WINDOW = Window.of([Segment(0, 10, (1, 2, 3), request=4), Segment(2, 7, (5,), request=6)], keep=True)


def planted(where: Where, values: np.ndarray, place: Place = WHOLE, layer: int = 3, stage: int = 0, window: Window = WINDOW):
    """What a fault makes of values: indices of changed elements, and how often it flipped."""
    fault, before = UlpFault(where), values.copy()
    fault.see(stage, window, where.point, layer, values, place)
    bits = f"u{values.itemsize}"
    changed = np.argwhere(values.view(bits) != before.view(bits))
    assert ((values.view(bits) ^ before.view(bits))[tuple(changed.T)] == 1).all()
    return changed.tolist(), fault.n_flips


def floats(*shape) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def test_it_flips_the_largest_element_of_every_row_where_nothing_else_is_said():
    values = floats(4, 9)
    largest = np.abs(values).argmax(axis=1)
    assert planted(Where("p"), values) == ([[row, int(at)] for row, at in enumerate(largest)], 4)


@pytest.mark.parametrize(
    ("conditions", "rows"),
    [
        (dict(layer=3), [0, 1, 2, 3]), (dict(layer=2), []), (dict(stage=1), []), (dict(position=11), [1]), (dict(request=6), [3]),
        (dict(request=4, position=12), [2]), (dict(min_segments=2), [0, 1, 2, 3]), (dict(min_segments=3), []), (dict(min_rows=5), []),
        (dict(most=2), [0, 1]),
    ],
)
def test_conditions_choose_rows(conditions, rows):
    assert planted(Where("p", element=5, **conditions), floats(4, 9)) == ([[row, 5] for row in rows], len(rows))


def test_records_of_other_rows_and_parts_are_found_by_their_place():
    place = Place(rows=np.array([3, 1, 1], np.int32), parts=np.array([8, 8, 9], np.int32))
    assert planted(Where("p", position=11, part=9, element=0), floats(3, 4), place) == ([[2, 0]], 1)
    assert planted(Where("p", part=8, element=0), floats(3, 4), place)[0] == [[0, 0], [1, 0]]
    assert planted(Where("p", part=8), floats(4, 4)) == ([], 0)


def test_state_is_flipped_in_its_own_lines():
    state = np.arange(40, dtype=np.uint16).reshape(10, 4)
    place = Place(lines=np.array([[2, 7, -1]], np.int32), rows=np.array([3], np.int32))
    assert planted(Where("p", element=6), state.copy(), place) == ([[7, 2]], 1)
    assert planted(Where("p", element=LARGEST), state.copy(), place)[0] == [[7, 3]]
    assert planted(Where("p", element=8), state.copy(), place) == ([], 0)


def test_elements_past_a_records_length_are_left_alone():
    values = floats(2, 6)
    values[:, 4:] = 100
    place = Place(rows=np.array([0, 1], np.int32), lengths=np.array([3, 0], np.int32))
    changed, n_flips = planted(Where("p"), values, place)
    assert (n_flips, changed[0][0]) == (1, 0)
    assert changed[0][1] < 3


def test_hashes_are_left_alone():
    assert planted(Where("p"), np.zeros((4, 2), np.uint64), Place(hashed=True)) == ([], 0)


@pytest.mark.parametrize("kind", [np.float32, np.uint16, np.int8, np.int32, np.int64])
def test_every_type_of_element_changes_by_its_lowest_bit(kind):
    values = np.ones((1, 3), kind)
    assert flip(values, WHOLE, 0, 1)
    assert (values.view(f"u{values.itemsize}")[0] ^ np.ones(3, kind).view(f"u{values.itemsize}")).tolist() == [0, 1, 0]


def test_values_that_do_not_lie_in_one_piece_are_refused():
    with pytest.raises(UsageError, match="do not lie in one piece"):
        flip(floats(3, 4, 4).transpose(0, 2, 1), WHOLE, 0, 0)


def test_a_description_reads_back():
    for where in (Where("gdn.scan"), Where("moe.hidden", layer=5, position=12, part=3, element=7, most=1)):
        assert parse_where(where.text()) == where
    assert parse_where("gdn.scan:layer=5").text() == "gdn.scan:layer=5"


@pytest.mark.parametrize("text", ["gdn.scan:layer", "gdn.scan:layer=x", "gdn.scan:where=3", "gdn.scan:point=3"])
def test_a_description_that_is_none_is_refused(text):
    with pytest.raises(UsageError, match="is no condition"):
        parse_where(text)
