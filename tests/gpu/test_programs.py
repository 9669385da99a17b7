"""Launches that start early give the bits of launches that wait for each other, whole layers of them, over and over."""

import numpy as np
import pytest

from tests.gpu.measure import window_variants as model
from tests.gpu.measure.moe import relaunched
from tests.gpu.measure.layers import DeltaNetLayers
from tests.gpu.support import assert_same_bits

REPLAYS = 12
LAYERS = 4
"""Layers of a whole model: three delta nets and one with attention."""


@pytest.mark.parametrize("n_rows", [1, 2, 4, 8])
def test_layers_whose_launches_start_early_have_the_bits_of_layers_that_wait(n_rows, card):
    from strata.cuda.card.graphs import Graph

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


@pytest.mark.parametrize("n_rows", [1, 2])
def test_a_window_whose_launches_start_early_has_the_bits_of_one_whose_launches_wait(n_rows, card):
    """Delta nets, attention, experts and head at the real geometry; a write of experts reads the router's results early."""
    from strata.bench.gpu.stage import PATTERNS, fill_cells
    from strata.cuda.card.graphs import Graph
    from strata.windows.stage_pass import pass_blocks

    config, stage = model.made_stage(card, LAYERS)
    executor, window = model.executor_of(card, config, stage, n_rows), model.window_of(config, n_rows)
    program = executor.prepare(window, pass_blocks)
    graph, waiting = Graph(card, program.launches), [relaunched(launch, False) for launch in program.launches]

    def send_one_by_one() -> None:
        for launch in waiting:
            launch.go()
            card.synchronise()

    def three_windows(send) -> np.ndarray:
        for slot in range(n_rows):
            executor.clear(slot)
        fill_cells(executor.sessions, model.SEED)
        logits = []
        for _ in range(3):
            send()
            card.synchronise()
            logits.append(program.logits.copy_to_host()[: n_rows * config.vocabulary])
        return np.concatenate(logits)

    wanted = three_windows(send_one_by_one)
    assert np.isfinite(wanted).all() and np.unique(wanted).size > config.vocabulary // 2
    try:
        for number in range(REPLAYS):
            assert_same_bits(f"replay {number}", three_windows(graph.replay), wanted)
    finally:
        graph.close()
        executor.close()
        for purpose in (f"weights of {stage.name}", PATTERNS):
            card.give_back(purpose)
