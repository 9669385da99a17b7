"""Stream operations of a card against the host: write, norm, gate, mix, the fused read, combined experts, activation."""

from dataclasses import replace

import numpy as np

from strata.host import experts as host_experts
from strata.host import streams as host
from strata.host.float_products import float_product
from strata.model.config import ModelConfig
from tests.gpu.geometry import CodedOutput, flat, normal, read, run
from tests.gpu.support import GuardedOutput, assert_same_bits, random_float_weights, random_rows


def check_write_and_norm(card, control, config: ModelConfig, row_counts) -> None:
    """Write of a block's output and norm in one kernel, each half alone, and the norm of chosen rows."""
    from strata.cuda.residual.streams import launch_write_normalise

    c, most = config, max(row_counts)
    eps, width = np.float32(c.rms_epsilon), c.residual_width
    residual = random_rows(1, most, width).reshape(most, c.n_streams, c.hidden)
    y, inject, norm = random_rows(2, most, c.hidden), normal(3, most, c.n_streams), normal(4, width)
    written, normed, plain = residual.copy(), np.empty((most, width), np.float32), np.empty((most, width), np.float32)
    host.normalise(control, residual, norm, eps, plain)
    host.write(written, y, inject)
    host.normalise(control, written, norm, eps, normed)
    placed_y, placed_inject, placed_norm = flat(card, y), flat(card, inject), flat(card, norm)
    for n in row_counts:
        place, out = GuardedOutput(card, n * width), GuardedOutput(card, n * width)
        place.inside.copy_to_device(residual[:n].reshape(-1))
        run(card, launch_write_normalise(card, c, place.inside, n, y=placed_y, inject=placed_inject, norm=placed_norm, normed=out.inside))
        assert_same_bits(f"residual, {n} rows", place.read((n, c.n_streams, c.hidden)), written[:n])
        assert_same_bits(f"normed, {n} rows", out.read((n, width)), normed[:n])
    whole = flat(card, residual)
    out = GuardedOutput(card, most * width)
    run(card, launch_write_normalise(card, c, whole, most, norm=placed_norm, normed=out.inside))
    assert_same_bits("norm alone", out.read((most, width)), plain)
    run(card, launch_write_normalise(card, c, whole, most, y=placed_y, inject=placed_inject))
    assert_same_bits("write alone", read(whole, *residual.shape), written)
    chosen = np.array([most - 1, 0], np.int32)[: min(2, most)]
    out = GuardedOutput(card, len(chosen) * width)
    run(card, launch_write_normalise(card, c, whole, len(chosen), norm=placed_norm, normed=out.inside, chosen=flat(card, chosen)))
    assert_same_bits("chosen rows", out.read((len(chosen), width)), normed[chosen])
    one = np.empty((most, width), np.float32)
    host.normalise(control, residual.reshape(most, 1, width), norm, eps, one)
    out = GuardedOutput(card, most * width)
    run(card, launch_write_normalise(card, c, flat(card, residual), most, norm=placed_norm, normed=out.inside, streams=(1, width)))
    assert_same_bits("one norm a row", out.read((most, width)), one)


def check_read(card, control, config: ModelConfig, type_name: str, row_counts) -> None:
    """Low-rank gate, `up` product and mix: the fused kernel, and the separate ones."""
    from strata.cuda.residual.read_mix import launch_read_mix
    from strata.cuda.residual.streams import launch_low_rank_gate, launch_mix

    c, most = config, max(row_counts)
    rank, width = c.low_rank, c.residual_width
    low, normed = random_rows(5, most, rank), random_rows(6, most, width)
    up = random_float_weights(type_name, 7, width, rank)
    gated, gate, mixed = low.copy(), np.empty((most, width), np.float32), np.empty((most, c.hidden), np.float32)
    host.low_rank_gate(gated, np.float32(c.n_streams))
    float_product(type_name)(control, up, gated, gate)
    host.mix(control, normed, gate, c.n_streams, mixed)
    placed_low, placed_up, placed_normed = flat(card, low), flat(card, up.reshape(-1).view(np.uint8)), flat(card, normed)
    for n in row_counts:
        out, coded = GuardedOutput(card, n * c.hidden), CodedOutput(card, n, c.hidden)
        run(card, launch_read_mix(card, c, type_name, placed_low, placed_up, rank, placed_normed, n, out.inside, coded.coded))
        assert_same_bits(f"mixed, {n} rows", out.read((n, c.hidden)), mixed[:n])
        coded.check(f"mixed, {n} rows", control, mixed[:n])
    run(card, launch_low_rank_gate(card, placed_low, most, rank, c.n_streams))
    assert_same_bits("low", read(placed_low, most, rank), gated)
    out, coded = GuardedOutput(card, most * c.hidden), CodedOutput(card, most, c.hidden)
    run(card, launch_mix(card, c, placed_normed, flat(card, gate), most, out.inside, coded.coded))
    assert_same_bits("mix alone", out.read((most, c.hidden)), mixed)
    coded.check("mix alone", control, mixed)


def check_combine(card, control, config: ModelConfig, row_counts) -> None:
    """The experts' combination, alone and on the way into the streams."""
    from strata.cuda.experts.combine import Combined, launch_combine
    from strata.cuda.residual.streams import launch_write_normalise

    c, most = config, max(row_counts)
    width = c.residual_width
    outputs, shared = random_rows(8, most * c.n_used, c.hidden), random_rows(9, most, c.hidden)
    weights, shared_gate, inject = np.abs(normal(10, most, c.n_used)), normal(11, most, 1), normal(12, most, c.n_streams)
    norm, residual = normal(13, width), random_rows(14, most, width).reshape(most, c.n_streams, c.hidden)
    for n in row_counts:
        entry_of = np.random.default_rng(n).permutation(n * c.n_used).astype(np.int32).reshape(n, c.n_used)
        y, written, normed = np.empty((n, c.hidden), np.float32), residual[:n].copy(), np.empty((n, width), np.float32)
        host_experts.combine(outputs, entry_of, weights[:n], shared[:n], shared_gate[:n], y)
        host.write(written, y, inject[:n])
        host.normalise(control, written, norm, np.float32(c.rms_epsilon), normed)
        combined = Combined(c.n_used, *(flat(card, a) for a in (outputs, entry_of, weights, shared, shared_gate)))
        out = GuardedOutput(card, n * c.hidden)
        run(card, launch_combine(card, c.hidden, combined, n, out.inside))
        assert_same_bits(f"combined, {n} rows", out.read((n, c.hidden)), y)
        for is_known in (False, True):
            place, after = flat(card, residual[:n]), GuardedOutput(card, n * width)
            experts, placed_inject = replace(combined, is_known=is_known), flat(card, inject)
            run(card, launch_write_normalise(card, c, place, n, experts=experts, inject=placed_inject, norm=flat(card, norm), normed=after.inside))
            assert_same_bits(f"combined into streams, {n} rows", read(place, n, c.n_streams, c.hidden), written)
            assert_same_bits(f"combined and normed, {n} rows", after.read((n, width)), normed)


def check_activation(card, control, config: ModelConfig, n_entries: int) -> None:
    """silu(gate) * up and its codes."""
    from strata.cuda.experts.activation import launch_activation

    n = config.expert_ff
    gate, up = random_rows(15, n_entries, n), random_rows(16, n_entries, n)
    wanted = gate.copy()
    host_experts.activate(wanted, up)
    out, coded = GuardedOutput(card, n_entries * n), CodedOutput(card, n_entries, n)
    run(card, launch_activation(card, flat(card, gate), flat(card, up), n_entries, n, out.inside, coded.coded))
    assert_same_bits("hidden", out.read((n_entries, n)), wanted)
    coded.check("hidden", control, wanted)
