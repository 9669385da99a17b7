"""Checks of the benchmark's twins: they compute the same products, up to the last bits.

Used on a card (tests/gpu) and in the simulator (tests/sim).  Does not know: sizes.
"""

import numpy as np

from strata.formats.table import by_name

TOLERANCE = 1e-5
"""Of the largest result: what another order may change."""


def generated_matrix(card, type_name: str, n_out: int, n_in: int):
    """Return a matrix on the card, made by the generator's twin on the host."""
    from strata.bench.gpu.patterns import generated, pattern_of
    from strata.bench.gpu.specs import Spec
    from strata.cuda.memory.placed import FloatMatrix
    from strata.cuda.packed.products import Packed

    spec = Spec("test", (n_out, n_in), type_name)
    raw = card.upload("test", generated(pattern_of(type_name), spec.n_bytes, 11))
    return Packed(raw, by_name(type_name).type_id, n_out, n_in) if spec.is_quantised else FloatMatrix(raw, type_name, n_out, n_in)


def check_pair(card, pair) -> None:
    """Fail unless both launches write nearly the same finite numbers over NaN."""
    found = []
    for launch in pair:
        out = launch.arguments[-1]
        out.copy_to_device(np.full(out.size, np.nan, np.float32))
        launch.go()
        card.synchronise()
        found.append(out.copy_to_host())
    assert np.isfinite(found[0]).all() and np.abs(found[0]).max() > 0
    assert np.abs(found[1] - found[0]).max() <= TOLERANCE * np.abs(found[0]).max()


def check_packed(card, type_name: str, n_rows: int, n_out: int, n_in: int) -> None:
    from strata.bench.gpu.free_order import Freer
    from strata.bench.gpu.tax import packed_pair

    check_pair(card, packed_pair(card, Freer(), generated_matrix(card, type_name, n_out, n_in), n_rows))


def check_floats(card, type_name: str, n_out: int, n_in: int) -> None:
    from strata.bench.gpu.tax import float_pair

    check_pair(card, float_pair(card, generated_matrix(card, type_name, n_out, n_in)))
