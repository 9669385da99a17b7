"""Products of one input launched together, on a card against the host: every matrix has the bits of its own product."""

import numpy as np

from tests.gpu.geometry import flat, run
from tests.gpu.support import (
    GuardedOutput, assert_same_bits, coded_on_host, dense_on_host, floats_on_host, packed_weights, padded_bytes, random_float_weights,
    random_rows, turned,
)


def coded_on_card(card, coded):
    """Upload coded rows of the host."""
    from strata.cuda.packed.products import Coded

    n_rows, n = coded.codes.shape
    return Coded(*(flat(card, a) for a in (coded.codes, turned(coded.codes), coded.scales, coded.sums)), n_rows, n)


def check_projections(card, control, forms, float_types, n_outs, n_in: int, row_counts, most_launches: int) -> None:
    """Matrices of `forms` and `float_types` with n_outs outputs each (the quantised ones first), in most_launches at most."""
    from strata.cuda.memory.placed import FloatMatrix
    from strata.cuda.packed.products import Packed
    from strata.cuda.stage.projections import Projection, launch_projections

    x = random_rows(1, max(row_counts), n_in)
    coded = coded_on_host(control, x)
    placed_x, placed_codes, matrices, wanted = flat(card, x), coded_on_card(card, coded) if forms else None, [], []
    for i, form in enumerate(forms):
        raw = packed_weights(form, 10 + i, n_outs[i], n_in)
        matrices.append(Packed(flat(card, raw), form.type_id, n_outs[i], n_in))
        wanted.append(dense_on_host(control, form, raw, n_outs[i], coded))
    for i, name in enumerate(float_types, len(forms)):
        weights = random_float_weights(name, 10 + i, n_outs[i], n_in)
        matrices.append(FloatMatrix(flat(card, padded_bytes(weights)), name, n_outs[i], n_in))
        wanted.append(floats_on_host(control, name, weights, x))
    for n in row_counts:
        outs = [GuardedOutput(card, n * m.n_out) for m in matrices]
        asked = [Projection(m, out.inside) for m, out in zip(matrices, outs, strict=True)]
        launches = launch_projections(card, asked, placed_x, placed_codes, n)
        assert len(launches) <= most_launches, f"{n} rows: {len(launches)} launches"
        run(card, *launches)
        for i, (m, out) in enumerate(zip(matrices, outs, strict=True)):
            assert_same_bits(f"matrix {i}, {n} rows", out.read((n, m.n_out)), np.ascontiguousarray(wanted[i][:n]))
