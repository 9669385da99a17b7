"""The small model of `fixtures/`, read and dequantised once per process, and its reference figures.

Use in a test module: `from tests.oracle.fixture_model import fixture_oracle, reference  # noqa: F401`, or import the
cached functions.  Tensors are float32 (about 0.25 GB) and read-only; the oracle widens them on use.
"""

from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from tests.oracle.model import OracleModel
from tests.oracle.weights import load_weights

FIXTURE = Path(__file__).resolve().parents[2] / "fixtures" / "strata-mini-mix"
MODEL_FILES = (FIXTURE / "strata-mini-mix.gguf", FIXTURE / "strata-mini-mix-mtp.gguf")


@cache
def load_fixture() -> tuple[MappingProxyType, MappingProxyType]:
    """Keys and float32 tensors of the trunk and the draft layer, both read-only."""
    keys, tensors = load_weights(MODEL_FILES)
    for tensor in tensors.values():
        tensor.flags.writeable = False
    return MappingProxyType(keys), MappingProxyType(tensors)


@cache
def load_oracle() -> OracleModel:
    """The oracle on the fixture's weights."""
    return OracleModel(*load_fixture())


@cache
def load_reference() -> MappingProxyType:
    """The stored reference figures: `p{i}_logits` and so on."""
    with np.load(FIXTURE / "reference-mix.npz") as stored:
        return MappingProxyType({name: stored[name] for name in stored.files})


@pytest.fixture(scope="session")
def fixture_oracle() -> OracleModel:
    """The oracle on the fixture's weights, shared by all tests; never modified."""
    return load_oracle()


@pytest.fixture(scope="session")
def reference() -> MappingProxyType:
    """The stored reference figures."""
    return load_reference()


@cache
def load_oracle_with_epsilon(eps: float) -> OracleModel:
    """The oracle with another norm epsilon: the reference took 1e-6, the file stores its float32 value."""
    keys, tensors = load_fixture()
    return OracleModel({**keys, "attention.layer_norm_rms_epsilon": eps}, tensors)
