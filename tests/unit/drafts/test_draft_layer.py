"""The draft layer on the host: against the reference, against itself in other company, and its picks."""

from dataclasses import replace

import numpy as np
import pytest

from strata.errors import UsageError
from strata.host.draft_picks import pick_drafts
from strata.host.matrix import Activations, Matrix
from strata.host.placed import tensors_of
from strata.host.placed_drafts import place_drafts
from strata.rows import KeptRows, Segment, Window
from strata.windows.stage_pass import run_stage
from tests.oracle.fixture_model import load_reference
from tests.unit.drafts.layer import Bench

N_FOLLOWED = 12
SEED = 5


@pytest.fixture
def bench(model):
    with Bench(model, n_slots=3) as opened:
        yield opened


def text_of(prompt: int) -> list[int]:
    stored = load_reference()
    return [*map(int, stored[f"p{prompt}_ids"]), *map(int, stored[f"p{prompt}_greedy"])]


@pytest.mark.parametrize("prompt", [0, 1])
def test_wide_drafts_and_their_probabilities_are_the_reference(model, prompt):
    stored, text = load_reference(), text_of(prompt)
    n = len(stored[f"p{prompt}_ids"])
    with Bench(model, "wide") as bench:
        bench.read(0, text, 0, n)
        for k in range(N_FOLLOWED):
            tokens, probabilities = bench.chain(0, 3)
            assert tokens == stored[f"p{prompt}_drafts"][k].tolist()
            assert np.abs(np.array(probabilities) - stored[f"p{prompt}_draft_prob"][k]).max() < 2e-6
            bench.read(0, text, n + k, n + k + 1)


def test_coded_drafts_are_nearly_the_reference(model):
    stored, text = load_reference(), text_of(1)
    n, equal = len(stored["p1_ids"]), 0
    with Bench(model) as bench:
        bench.read(0, text, 0, n)
        for k in range(N_FOLLOWED):
            equal += sum(a == b for a, b in zip(bench.chain(0, 3)[0], stored["p1_drafts"][k], strict=True))
            bench.read(0, text, n + k, n + k + 1)
    assert equal >= 3 * N_FOLLOWED - 4


@pytest.mark.parametrize("cuts", [(64,), (1, 2, 3, 63), (31, 32, 33), (17,)], ids=str)
def test_cells_and_drafts_do_not_depend_on_how_the_text_was_cut(bench, cuts):
    text, n = text_of(1), 65
    bench.read(0, text, 0, n)
    for start, stop in zip((0, *cuts), (*cuts, n), strict=True):
        bench.read(1, text, start, stop)
    assert bench.cell_bits(0, n) == bench.cell_bits(1, n)
    assert bench.chain(0, 3) == bench.chain(1, 3)


def test_other_text_gives_other_cells(bench):
    text = text_of(1)
    bench.read(0, text, 0, 20)
    bench.read(1, [text[0] + 1, *text[1:]], 0, 20)
    assert bench.cell_bits(0, 20) != bench.cell_bits(1, 20)


def test_a_cell_depends_on_the_token_behind_it(bench):
    text = text_of(1)
    bench.read(0, text, 0, 20)
    bench.read(1, [*text[:20], text[20] + 1], 0, 20)
    assert bench.cell_bits(0, 19) == bench.cell_bits(1, 19)
    assert bench.cell_bits(0, 20) != bench.cell_bits(1, 20)


def test_slots_that_draft_together_draft_as_they_do_alone(bench):
    texts = [text_of(0), text_of(1), text_of(2)]
    lengths, alone = (5, 40, 70), []
    for slot in range(3):
        bench.read(slot, texts[slot], 0, lengths[slot])
        alone.append(bench.drafts.propose([slot]))
        bench.read(slot, texts[slot], lengths[slot], lengths[slot] + 1)
        bench.drafts.clear(slot)
        bench.trunk.clear(slot)
        bench.read(slot, texts[slot], 0, lengths[slot])
    together = bench.drafts.propose([2, 0, 1])
    for row, slot in enumerate((2, 0, 1)):
        assert together.logits[row].tobytes() == alone[slot].logits[0].tobytes()
        assert together.tokens[row] == alone[slot].tokens[0] and together.probabilities[row] == alone[slot].probabilities[0]


def test_a_proposal_does_not_wear_out(bench):
    text = text_of(1)
    bench.read(0, text, 0, 20)
    first, again = (bench.drafts.propose([0]) for _ in range(2))
    assert first.tokens == again.tokens and first.logits.tobytes() == again.logits.tobytes()
    behind = bench.drafts.propose([0], first.tokens.tolist())
    assert behind.logits.tobytes() != first.logits.tobytes()


def test_a_chain_is_forgotten_when_the_next_cells_are_built(bench):
    text = text_of(1)
    for slot in (0, 1):
        bench.read(slot, text, 0, 30)
    bench.drafts.propose([0])
    for token in (5, 6, 7):
        bench.drafts.propose([0], [token])
    for slot in (0, 1):
        bench.read(slot, text, 30, 31)
    assert bench.chain(0, 3) == bench.chain(1, 3)


def test_cells_of_several_windows_made_at_once_are_those_made_one_by_one(bench):
    text, parts = text_of(1), []
    bench.read(0, text, 0, 30)
    bench.read(1, text, 0, 20)
    for start, stop in ((20, 21), (21, 25), (25, 30)):
        window = Window.of([Segment(1, start, tuple(text[start:stop]), 1)], keep=True, for_drafts=True)
        run_stage(bench.trunk, window, None, bench.drafts)
        parts.append(KeptRows(window, window.count, (tuple(text[start + 1 : stop + 1]),)))
    bench.drafts.build(parts)
    assert bench.cell_bits(0, 30) == bench.cell_bits(1, 30)
    assert bench.chain(0, 3) == bench.chain(1, 3)


def test_rejected_rows_make_no_cells(bench):
    text = text_of(1)
    for slot in (0, 1):
        bench.read(slot, text, 0, 20)
    window = Window.of([Segment(1, 20, (text[20], 7, 8), 3)], keep=False, for_drafts=True)
    run_stage(bench.trunk, window, None, bench.drafts)
    bench.trunk.commit(window, np.array([1], np.int32))
    bench.drafts.build([KeptRows(window, np.array([1], np.int32), ((text[21],),))])
    bench.read(0, text, 20, 21)
    assert bench.cell_bits(0, 21) == bench.cell_bits(1, 21) and bench.chain(0, 3) == bench.chain(1, 3)


def test_a_new_session_does_not_see_the_old_one(bench):
    bench.read(0, text_of(2), 0, 60)
    bench.drafts.propose([0])
    bench.drafts.clear(0)
    bench.trunk.clear(0)
    for slot in (0, 1):
        bench.read(slot, text_of(1), 0, 25)
    assert bench.chain(0, 4) == bench.chain(1, 4)


def test_a_copied_slot_drafts_as_the_one_it_was_copied_from(bench):
    bench.read(0, text_of(1), 0, 25)
    bench.read(2, text_of(2), 0, 40)
    bench.drafts.copy_slot(0, 2)
    assert bench.chain(2, 3) == bench.chain(0, 3)


def test_missing_cells_are_left_out_and_the_rest_still_drafts(bench):
    text = text_of(1)
    bench.read(0, text, 0, 30)
    complete = bench.chain(0, 2)
    bench.drafts.clear(0)
    bench.trunk.clear(0)
    bench.read(0, text, 0, 10)
    bench.drafts.clear(0)
    bench.read(0, text, 10, 30)
    assert bench.drafts.cells.counts[0] == 20
    assert bench.chain(0, 2) != complete


def test_a_slots_tip_is_where_its_cells_end(bench):
    text = text_of(1)
    assert not bench.drafts.has_tip(0, -2)
    bench.read(0, text, 0, 30)
    assert bench.drafts.has_tip(0, 29) and not bench.drafts.has_tip(0, 30)
    bench.chain(0, 3)
    assert bench.drafts.has_tip(0, 29)
    bench.drafts.clear(0)
    assert not bench.drafts.has_tip(0, 29)


def test_two_threads_give_the_bits_of_one(model):
    text, seen = text_of(1), []
    for n_threads in (1, 2):
        with Bench(model, n_threads=n_threads) as bench:
            bench.read(0, text, 0, 100)
            seen.append((bench.cell_bits(0, 100), bench.chain(0, 3)))
    assert seen[0] == seen[1]


def test_the_draft_head_is_the_heads_rows(model, bench):
    rows = bench.placed.token_ids
    x = np.random.default_rng(SEED).normal(size=(2, model.config.hidden)).astype(np.float32)
    make = lambda: Activations(x, bench.device.team.control, np.full(2, 32, np.int32))  # noqa: E731
    whole = Matrix(model.weights.output).times(make(), True, bench.device.team.control)
    part = bench.placed.head.times(make(), True, bench.device.team.control)
    assert part.tobytes() == np.ascontiguousarray(whole[:, rows]).tobytes()
    assert part.tobytes() != np.ascontiguousarray(whole[:, rows - 1]).tobytes()


def test_only_what_the_stage_lacks_is_accounted(model, bench):
    layer = sum(t.raw.size for t in tensors_of(model.weights.draft))
    assert bench.placed.weight_bytes == layer + bench.placed.head.nbytes
    assert bench.device.taken["draft layer"] == bench.placed.weight_bytes
    assert bench.device.taken["draft cells"] == 3 * bench.drafts.cell_bytes_per_slot


def test_a_model_without_a_draft_layer_is_refused(model, bench):
    with pytest.raises(UsageError, match="no draft layer"):
        place_drafts(replace(model.weights, draft=None), model.config, bench.trunk.placed)


@pytest.mark.parametrize(
    ("logits", "index"),
    [([1, 3, 3, 2], 1), ([np.nan, 1, 2, 2], 2), ([-np.inf] * 4, 0), ([np.nan] * 4, 0), ([-0.0, 0.0, -1, -1], 0)],
)
def test_the_largest_logit_is_picked_and_the_first_of_equals(logits, index):
    best, probability = np.empty(1, np.int32), np.empty(1, np.float32)
    pick_drafts(np.array([logits], np.float32), best, probability)
    assert best[0] == index


def test_the_probability_is_the_softmax_over_the_draft_vocabulary():
    logits = np.random.default_rng(SEED).normal(size=(3, 2048)).astype(np.float32) * 3
    best, probability = np.empty(3, np.int32), np.empty(3, np.float32)
    pick_drafts(logits, best, probability)
    exact = np.exp(logits.astype(np.float64))
    assert best.tolist() == logits.argmax(axis=1).tolist()
    assert np.abs(probability / (exact.max(axis=1) / exact.sum(axis=1)) - 1).max() < 1e-6
