"""The card's benchmark with a tier: banks in RAM are valid weights and memory of their own; figures follow from bytes and times."""

from dataclasses import replace

import numpy as np
import pytest

from strata.bench.gpu import ram_experts
from strata.bench.gpu.geometry import REAL
from strata.bench.gpu.ram_experts import banks_in_ram, lay_out, layers_over, ram_bytes, require_ram, template
from strata.bench.gpu.specs import Writer
from strata.errors import DeviceError
from strata.formats.table import by_name
from strata.formats.unpack import dequantise

SMALL = replace(REAL, n_layers=4, n_experts=8, hidden=512, expert_ff=256, shared_ff=256, vocabulary=512)


def weights(experts: str = "Q4_K"):
    return Writer(SMALL, "Q4_K", experts, "Q6_K").weights()


@pytest.mark.parametrize("experts", ["Q4_K", "Q2_0"])
def test_banks_hold_ordinary_weights_in_the_sizes_of_the_specs(experts):
    made = weights(experts)
    banks = banks_in_ram(made, 2)
    assert banks.total_bytes == ram_bytes(made) and banks.layers == (0, 1, 2, 3)
    for layer in made.layers:
        for part in ("gate", "up", "down"):
            spec = getattr(layer.moe, part)
            found = dequantise(by_name(spec.type_name), banks.of[layer.index, part][3], spec.n_weights // spec.shape[0])
            assert np.isfinite(found).all() and 0.2 / 64 < found.std() < 5 / 64


def test_every_bank_starts_elsewhere_in_the_template():
    banks = banks_in_ram(weights(), 2)
    heads = {bank[0, :1024].tobytes() for bank in banks.of.values()}
    assert len(heads) == len(banks.of)


def test_a_bank_longer_than_the_template_goes_round():
    blocks = np.arange(12, dtype=np.uint8).reshape(4, 3)
    bank = np.full(31, 255, np.uint8)
    lay_out(bank, blocks, 1)
    first = ram_experts.STEP % 4 * 3
    assert bank.tolist() == [(first + i) % 12 for i in range(31)]


def test_matrices_lie_over_the_banks_without_a_copy():
    made = weights()
    banks = banks_in_ram(made, 1)
    layers = layers_over(made, banks)
    assert np.shares_memory(layers[2].down.raw, banks.of[2, "down"])
    assert layers[2].gate.expert_bytes == banks.of[2, "gate"].shape[1]
    assert np.array_equal(layers[1].up.blob(5), banks.of[1, "up"][5])


def test_templates_are_whole_blocks():
    assert template("Q4_K").shape == (ram_experts.TEMPLATE_BLOCKS, by_name("Q4_K").block_bytes)


def test_too_little_ram_is_refused_with_the_layers_that_fit(monkeypatch):
    made = weights()
    monkeypatch.setattr(ram_experts, "available_bytes", lambda: ram_experts.SPARE_BYTES + ram_bytes(made) // 2)
    with pytest.raises(DeviceError, match="use --layers 2"):
        require_ram(made)
