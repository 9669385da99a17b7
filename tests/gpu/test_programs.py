"""Launches that start early give the bits of launches that wait for each other, whole layers of them, over and over."""

import numpy as np
import pytest

from tests.gpu.measured_layers import DeltaNetLayers
from tests.gpu.support import assert_same_bits

REPLAYS = 12


@pytest.mark.parametrize("n_rows", [1, 2, 4, 8])
def test_layers_whose_launches_start_early_have_the_bits_of_layers_that_wait(n_rows, card):
    from strata.cuda.graphs import Graph

    layers = DeltaNetLayers(card, n_rows, 3)
    launches = [launch for one in layers.whole for launch in one]
    start = {name: array.copy_to_host() for name, array in layers.state.items()}
    windows = []
    for _ in range(3):
        for launch in launches:
            launch.go()
            card.synchronise()
        windows.append({name: array.copy_to_host() for name, array in layers.state.items()})
    assert all(np.isfinite(values).all() for values in windows[-1].values())
    for launch in launches[1:]:
        launch.follow()
    assert all(launch.programmatic for launch in launches[1:]) == card.target.dependent_launch
    graph = Graph(card, launches)
    for _ in range(REPLAYS):
        for name, array in layers.state.items():
            array.copy_to_device(start[name])
        for number, wanted in enumerate(windows):
            graph.replay()
            card.synchronise()
            for name, array in layers.state.items():
                assert_same_bits(f"{name}, window {number}", array.copy_to_host(), wanted[name])
    graph.close()
