"""The draft layer's cells and chained proposals, bit by bit, against the executor written from docs/NUMERICS.md."""

import numpy as np
import pytest

from strata.host.device import HostDevice
from strata.host.drafts import HostDrafts
from strata.host.placed import place_stage
from strata.host.placed_drafts import place_drafts
from strata.model.model import load_model
from strata.numerics.rounding import MODES
from strata.rows import KeptRows
from tests.oracle.config import read_config
from tests.unit.host.engine_steps import FOLDER, MAIN, one_slot
from tests.unit.numerics.bounds import equal_bits
from tests.unit.numerics.stranger.drafts import StrangerDrafts
from tests.unit.numerics.stranger.model import Stranger
from tests.unit.numerics.stranger.tensors import Tensors

FILES = [MAIN, FOLDER / "strata-mini-mix-mtp.gguf"]
SLOT = 1


@pytest.fixture(scope="module")
def model():
    return load_model(FILES)


@pytest.fixture(scope="module")
def tensors():
    return Tensors(FILES)


def new_pair(model, tensors, mode: str, kv: str) -> tuple[HostDrafts, StrangerDrafts]:
    device = HostDevice("host:0", None, 1)
    stage = place_stage(model.weights, model.config, model.config.n_layers - 1, model.config.n_layers)
    drafts = HostDrafts(device, model.config, place_drafts(model.weights, model.config, stage), MODES[mode], kv, 2, 128)
    return drafts, StrangerDrafts(Stranger(tensors, read_config(tensors.keys), mode, kv))


def same_chain(drafts: HostDrafts, stranger: StrangerDrafts, n: int) -> bool:
    """Whether n chained proposals agree in ids, probabilities and every logit."""
    chosen, agree = None, True
    for _ in range(n):
        found = drafts.propose([SLOT], chosen)
        best, probability, logits = stranger.propose()
        agree &= int(found.tokens[0]) == int(drafts.token_ids[best]) and equal_bits(found.probabilities, np.reshape(probability, 1))
        agree &= equal_bits(found.logits[0], logits)
        chosen = found.tokens
        stranger.chain(int(chosen[0]))
    return bool(agree)


@pytest.mark.parametrize(("mode", "kv"), [("canonical", "f16"), ("canonical", "int8"), ("wide", "f32")])
def test_cells_and_chains_have_the_strangers_bits(mode, kv, model, tensors):
    """67 cells first, so that attention has two splits; then two kept rows of a window of four."""
    drafts, stranger = new_pair(model, tensors, mode, kv)
    generator, config = np.random.default_rng(1), model.config
    residual = generator.standard_normal((71, config.n_streams, config.hidden)).astype(np.float32)
    tokens = generator.integers(0, 4093, 72).tolist()
    for first, n, kept in ((0, 67, 67), (67, 4, 2)):
        window = one_slot(tokens[first : first + n], first, SLOT)
        drafts.hold(window, residual[first : first + n])
        drafts.build([KeptRows(window, np.array([kept], np.int32), (tuple(tokens[first + 1 : first + 1 + kept]),))])
        stranger.build(residual[first : first + kept], tokens[first + 1 : first + 1 + kept], first)
        assert same_chain(drafts, stranger, 3)
    drafts.device.close()


def test_another_mode_is_told_apart(model, tensors):
    drafts, _ = new_pair(model, tensors, "canonical", "f16")
    _, stranger = new_pair(model, tensors, "wide", "f32")
    residual = np.random.default_rng(2).standard_normal((2, model.config.n_streams, model.config.hidden)).astype(np.float32)
    window = one_slot([5, 6], 0, SLOT)
    drafts.hold(window, residual)
    drafts.build([KeptRows(window, np.array([2], np.int32), ((6, 7),))])
    stranger.build(residual, [6, 7], 0)
    assert not same_chain(drafts, stranger, 1)
    drafts.device.close()
