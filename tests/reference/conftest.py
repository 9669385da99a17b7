"""The shipped model, its float64 reference figures and prompts, opened once for this folder."""

import json
from pathlib import Path

import numpy as np
import pytest

from strata.batch.engine import Engine
from strata.batch.settings import EngineSettings
from strata.model.model import load_model
from strata.split.probes import SilentProbe

FIXTURE = Path(__file__).parents[2] / "fixtures" / "strata-mini-mix"
CONTEXT = 2048


@pytest.fixture(scope="session")
def model():
    return load_model(FIXTURE)


@pytest.fixture(scope="session")
def reference():
    return np.load(FIXTURE / "reference-mix.npz")


@pytest.fixture(scope="session")
def prompts():
    return json.loads((FIXTURE / "prompts.json").read_text())


class Seen(SilentProbe):
    """A probe that keeps the values of some points, by (layer, point), rows appended window by window."""

    def __init__(self, points: tuple[str, ...]) -> None:
        self.points, self.values = points, {}

    def see(self, stage, window, point, layer, values, place):
        if point in self.points:
            self.values.setdefault((layer, point), []).append(values.copy())


@pytest.fixture(scope="session")
def open_engine(model):
    """Return a function that opens an engine in a rounding mode, with a probe on points."""
    opened = []

    def open_it(rounding: str, points: tuple[str, ...] = ()):
        seen = Seen(points)
        engine = Engine(model, EngineSettings(rounding=rounding, context=CONTEXT), seen if points else None)
        opened.append(engine)
        return engine, seen

    yield open_it
    for engine in opened:
        engine.close()
