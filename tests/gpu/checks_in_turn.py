"""Experts blocks of two inputs in turn, on the same buffers, in a graph whose kernels start before the ones ahead have ended."""

import numpy as np

from strata.model.config import ModelConfig
from tests.gpu.checks_experts import _bank, _float_matrix
from tests.gpu.geometry import flat
from tests.gpu.support import GuardedOutput, assert_same_bits, coded_on_host, random_float_weights, random_rows, turned

PAIRS, REPLAYS = 6, 20


def _part(card, config: ModelConfig, forms: dict):
    from strata.cuda.memory.placed import Part

    c = config
    shapes = {
        "gate": (c.expert_ff, c.hidden, c.n_experts), "up": (c.expert_ff, c.hidden, c.n_experts), "down": (c.hidden, c.expert_ff, c.n_experts),
        "shared_gate": (c.shared_ff, c.hidden, 1), "shared_up": (c.shared_ff, c.hidden, 1), "shared_down": (c.hidden, c.shared_ff, 1),
    }
    banks = {name: _bank(card, forms[name], 70 + i, *shape)[1] for i, (name, shape) in enumerate(shapes.items())}
    floats = {
        name: _float_matrix(card, forms[name], random_float_weights(forms[name], 80, n_out, c.hidden))
        for name, n_out in (("router", c.n_experts), ("shared_router", 1))
    }
    return Part(banks | floats)


def check_blocks_in_turn(card, control, config: ModelConfig, forms: dict, n_rows: int) -> None:
    """Every block's combined rows are those of its launches sent one by one: a list read too early would be the other input's."""
    from strata.cuda.card.graphs import Graph
    from strata.cuda.card.launch import Launch
    from strata.cuda.experts.combine import launch_combine
    from strata.cuda.memory.workspace import Workspace
    from strata.cuda.packed.products import Coded
    from strata.cuda.stage.record_moe import MoeRecorder

    c, n, part, work, programs, outs = config, n_rows, _part(card, config, forms), Workspace(card, "in turn"), [], []
    for seed in (90, 190):
        x = random_rows(seed + n, n, c.hidden)
        coded = coded_on_host(control, x)
        placed = Coded(*(flat(card, a) for a in (coded.codes, turned(coded.codes), coded.scales, coded.sums)), n, c.hidden)
        launches: list = []
        add = lambda made, own=launches: own.extend(made if isinstance(made, tuple) else (made,))  # noqa: E731
        combined = MoeRecorder(card, c, work, n, add).block(part, flat(card, x), placed)
        outs.append(GuardedOutput(card, n * c.hidden))
        programs.append([*launches, launch_combine(card, c.hidden, combined, n, outs[-1].inside)])
    wanted = []
    for program, out in zip(programs, outs, strict=True):
        for launch in program:
            launch.go()
        card.synchronise()
        wanted.append(out.read((n, c.hidden)).copy())
    assert not np.array_equal(wanted[0], wanted[1]), "the inputs must differ"
    for program in programs:
        for launch in program:
            launch.follow()
    first = programs[0][0]
    plain = Launch(card, first.dispatcher, first.shape, first.arguments)
    graph = Graph(card, [plain, *(programs[0] + programs[1]) * PAIRS])
    for replay in range(REPLAYS):
        graph.replay()
        card.synchronise()
        for out, values in zip(outs, wanted, strict=True):
            assert_same_bits(f"{n} rows, replay {replay}", out.read((n, c.hidden)), values)
    graph.close()
