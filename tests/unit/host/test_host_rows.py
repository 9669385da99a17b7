"""Every row operation of the host: against float64, against the stranger's bits, and against itself in other company."""

import numpy as np
import pytest

from strata.cpu_pool.team import Team
from tests.unit.host.cases import ALL
from tests.unit.host.cases_products import encode_rows
from tests.unit.host.operation import (
    MOST_ROWS, RowOperation, differing, neighbour_fault, some, threshold_fault,
)
from tests.unit.numerics.bounds import relative_error
from tests.unit.numerics.stranger.sums import dot

ROUNDS_UNTIL_WORKERS_HELPED = 20
"""One is enough unless other processes hold the cores."""

every_operation = pytest.mark.parametrize("operation", ALL, ids=lambda operation: operation.name)


@pytest.fixture(scope="module")
def control():
    with Team(1) as team:
        yield team.control


@every_operation
def test_bits_are_those_of_an_executor_written_from_the_document(operation, control):
    rows = operation.inputs(11)
    found = operation.compute(control, **some(rows, slice(None)))
    assert differing(found, operation.stranger(**some(rows, slice(None)))) is None


@every_operation
def test_another_order_has_other_bits(operation, control):
    rows = operation.inputs(33)
    found = operation.compute(control, **some(rows, slice(None)))
    assert operation.wrong
    for name, wrong in operation.wrong.items():
        with np.errstate(all="ignore"):
            assert differing(found, tuple(np.asarray(x, f.dtype) for x, f in zip(wrong(**some(rows, slice(None))), found, strict=True))), name


@pytest.mark.parametrize("operation", [o for o in ALL if o.oracle], ids=lambda operation: operation.name)
def test_values_are_those_of_the_float64_oracle(operation, control):
    rows = operation.inputs(33)
    found = operation.compute(control, **some(rows, slice(None)))
    for ours, exact in zip(found, operation.oracle(**some(rows, slice(None))), strict=True):
        assert relative_error(ours, np.reshape(exact, ours.shape)) <= operation.bound


@every_operation
def test_no_row_count_changes_a_row(operation, control):
    assert threshold_fault(operation, control) is None


@every_operation
def test_no_neighbour_changes_a_row(operation, control):
    assert neighbour_fault(operation, control) is None


@pytest.mark.parametrize("n_threads", [2, 3])
def test_no_thread_count_changes_a_bit(n_threads, control):
    with Team(n_threads) as team:
        for _ in range(ROUNDS_UNTIL_WORKERS_HELPED):
            for operation in ALL:
                rows = operation.inputs(MOST_ROWS)
                found = operation.compute(team.control, **some(rows, slice(None)))
                fault = differing(found, operation.compute(control, **some(rows, slice(None))))
                assert fault is None, f"{operation.name}: {fault}"
            if all(team.n_pieces_by_workers):
                break
        assert all(team.n_pieces_by_workers)


def make_rows(generator, n):
    return {"x": generator.standard_normal((n, 320)).astype(np.float32)}


def planted(compute) -> RowOperation:
    return RowOperation("planted", make_rows, compute, lambda x: (x,))


def product(x, n_lanes: int):
    weights = np.random.default_rng(5).standard_normal((16, 320)).astype(np.float32)
    return (dot(x[:, None], weights, n_lanes),)


def test_a_product_that_takes_another_order_from_some_row_count_on_is_found(control):
    operation = planted(lambda _, x: product(x, 8 if 64 <= len(x) < 128 else 32))
    assert "row 0 of 64 is not the lone row" in threshold_fault(operation, control)
    assert threshold_fault(planted(lambda _, x: product(x, 32 if len(x) <= 8 else 8)), control) is not None
    assert threshold_fault(planted(lambda _, x: product(x, 32)), control) is None


def test_a_kernel_of_its_own_for_one_row_is_found(control):
    operation = planted(lambda _, x: product(x, 8 if len(x) == 1 else 32))
    assert "1 rows are not the first of 257" in threshold_fault(operation, control)


def test_an_order_of_its_own_for_the_last_row_is_found(control):
    """As where rows are taken in pairs and the odd one is left over."""

    def compute(_, x):
        return (np.concatenate((product(x[:-1], 32)[0], product(x[-1:], 8 if len(x) % 2 else 32)[0])),)

    assert threshold_fault(planted(compute), control) is not None


def test_a_scale_shared_by_the_window_is_found(control):
    def encode(control, x):
        together = encode_rows(control, x.reshape(1, -1), span=x.size)
        return tuple(part.reshape(len(x), -1) for part in together)

    assert "a neighbour that is NaN changes the row" in neighbour_fault(planted(encode), control)
    assert threshold_fault(planted(encode), control) is not None
