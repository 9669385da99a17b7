"""The draft layer's two steps without a card: every step that drafting takes is recorded on a blueprint, and its programs are kept.

Does not know: bits (tests/gpu has them).
"""

import numpy as np
import pytest

from strata.cuda.card.compiling import why_no_compiler

REASON = why_no_compiler()


def opened(kv: str, n_slots: int, context: int):
    """Return a blueprint and the shipped model's draft layer on it."""
    from strata.cuda.card.blueprint import Blueprint
    from strata.cuda.drafting.draft_layer import CudaDrafts
    from strata.cuda.drafting.placed_drafts import place_drafts
    from strata.cuda.memory.placed import place_stage
    from strata.model.model import load_model
    from tests.unit.model.fixture_files import FOLDER

    model, device = load_model(FOLDER), Blueprint((9, 0))
    c = model.config
    placed = place_stage(device, model.weights, c, c.n_layers - 1, c.n_layers)
    table = device.empty("table", context * c.rope_dims, np.float32)
    return device, CudaDrafts(device, c, place_drafts(device, model.weights, c, placed), kv, n_slots, context, table)


def build(device, drafts, *segments: tuple[int, int, int]) -> None:
    """Hold a window of (slot, start, rows) segments, and make cells of all its rows."""
    from strata.rows import KeptRows, Segment, Window

    window = Window.of([Segment(slot, start, (1,) * n) for slot, start, n in segments], True, True)
    drafts.hold(window, device.empty("residual", window.n_rows * drafts.config.residual_width, np.float32))
    drafts.build([KeptRows(window, np.array([n for _, _, n in segments], np.int32), tuple((1,) * n for _, _, n in segments))])


@pytest.mark.ptx
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.parametrize("kv", ["f16", "int8"])
def test_every_step_of_drafting_is_recorded_without_a_card(kv):
    device, drafts = opened(kv, 3, 256)
    build(device, drafts, (0, 0, 40))
    build(device, drafts, (0, 40, 1), (1, 0, 5), (2, 0, 1))
    for slots in ((0,), (0, 1, 2)):
        drafted = drafts.propose(slots).tokens
        assert drafts.propose(slots, list(drafted)).logits.shape == (len(slots), len(drafts.token_ids))
    names = {key[0] for key in drafts._programs}
    assert names == {"build", "propose"} and all(program.launches for program in drafts._programs.values())
    kernels = " ".join(dispatcher.py_func.__qualname__ for dispatcher, _ in device.needed)
    for room in ("note_kernel", "list_kernel", "move_kernel", "pick_kernel"):
        assert room in kernels, room
    drafts.close()


@pytest.mark.ptx
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_a_step_is_recorded_again_only_where_its_buffers_have_grown():
    device, drafts = opened("f16", 2, 256)
    build(device, drafts, (0, 0, 3))
    first = drafts._programs["build", 3]
    build(device, drafts, (0, 3, 3))
    assert drafts._programs["build", 3] is first
    build(device, drafts, (0, 6, 100))
    build(device, drafts, (0, 106, 3))
    assert drafts._programs["build", 3] is not first
    drafts.close()
