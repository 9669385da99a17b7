"""The whole model against the float64 reference: exact choices in `wide`, small errors in `canonical`.

The reference figures are MODEL.md's: three prompts, 24 logit rows, 192 greedy tokens.  The bounds are what coded
activations cost (docs/NUMERICS.md); a bound that everything meets is checked against a model that misses it.
"""

import numpy as np
import pytest

from strata.batch.requests import Request

N_PROMPTS, N_GREEDY = 3, 64
DECISIVE_MARGIN = 0.15


def relative_errors(logits, reference, prompt):
    expected = reference[f"p{prompt}_logits"].astype(np.float64)
    got = logits[-len(expected):].astype(np.float64)
    return np.linalg.norm(got - expected, axis=1) / np.linalg.norm(expected, axis=1)


def ids_of(reference, prompt):
    return tuple(int(t) for t in reference[f"p{prompt}_ids"])


@pytest.fixture(scope="module")
def wide(open_engine, reference):
    """Per prompt: logits of every position, and what the probe saw."""
    results = []
    for prompt in range(N_PROMPTS):
        engine, seen = open_engine("wide", ("moe.ids", "indexer.cells", "moe.residual"))
        results.append((engine.score(ids_of(reference, prompt)), dict(seen.values), engine))
    return results


@pytest.fixture(scope="module")
def canonical(open_engine, reference):
    results = []
    for prompt in range(N_PROMPTS):
        engine, seen = open_engine("canonical", ("moe.ids",))
        logits, values = engine.score(ids_of(reference, prompt)), dict(seen.values)
        results.append((logits, values, engine))
    return results


@pytest.mark.parametrize("prompt", range(N_PROMPTS))
def test_wide_logits_are_within_a_hundred_thousandth(wide, reference, prompt):
    assert relative_errors(wide[prompt][0], reference, prompt).max() < 1e-5


@pytest.mark.parametrize("prompt", range(N_PROMPTS))
def test_wide_routes_every_position_as_the_reference_in_rank_order(wide, reference, prompt):
    expected = reference[f"p{prompt}_router_all"]
    for layer in range(expected.shape[1]):
        got = np.concatenate(wide[prompt][1][layer, "moe.ids"])
        np.testing.assert_array_equal(got, expected[:, layer])


@pytest.mark.parametrize("prompt", range(N_PROMPTS))
def test_wide_selects_the_reference_cells_and_residuals(wide, reference, prompt):
    seen = wide[prompt][1]
    for m in range(3):
        cells = seen[4 * m + 3, "indexer.cells"][-1][-1]
        np.testing.assert_array_equal(cells[cells >= 0], reference[f"p{prompt}_cells_{m}"])
    for layer in range(12):
        got = seen[layer, "moe.residual"][-1][-1]
        np.testing.assert_allclose(got, reference[f"p{prompt}_residual"][layer], rtol=0, atol=2e-5 * np.abs(got).max())


@pytest.mark.parametrize("prompt", range(N_PROMPTS))
def test_wide_continues_greedily_as_the_reference(wide, reference, prompt):
    engine = wide[prompt][2]
    answer = engine.generate([Request(ids_of(reference, prompt), N_GREEDY)]).answers[0]
    assert answer.tokens == tuple(reference[f"p{prompt}_greedy"])
    assert tuple(e.row.second for e in answer.emitted) == tuple(reference[f"p{prompt}_second"])


def test_canonical_logits_stay_near_the_reference_and_are_not_equal_to_it(canonical, reference):
    errors = np.concatenate([relative_errors(canonical[p][0], reference, p) for p in range(N_PROMPTS)])
    assert errors.mean() <= 0.03
    assert errors.max() <= 0.08
    assert errors.min() > 1e-4, "coded activations cannot be this near: is the mode really coded?"


@pytest.mark.parametrize("prompt", range(N_PROMPTS))
def test_canonical_fed_the_reference_tokens_picks_them_where_the_margin_is_decisive(canonical, reference, prompt):
    greedy = tuple(int(t) for t in reference[f"p{prompt}_greedy"])
    answer = canonical[prompt][2].generate([Request(ids_of(reference, prompt), N_GREEDY, forced=greedy)]).answers[0]
    decisive = reference[f"p{prompt}_margin"] > DECISIVE_MARGIN
    assert decisive.sum() >= 60
    np.testing.assert_array_equal(np.array(answer.tokens)[decisive], np.array(greedy)[decisive])


def test_canonical_chooses_the_reference_expert_sets_nearly_always(canonical, reference):
    equal = total = 0
    for prompt in range(N_PROMPTS):
        expected = reference[f"p{prompt}_router_all"]
        for layer in range(expected.shape[1]):
            got = np.concatenate(canonical[prompt][1][layer, "moe.ids"])[: len(expected)]
            equal += int((np.sort(got, axis=1) == np.sort(expected[:, layer], axis=1)).all(axis=1).sum())
            total += len(expected)
    assert 0.93 <= equal / total < 1.0


def bits_per_byte(engine, prompts):
    """Bits per byte of the prompts' text under the model, each token after the first scored."""
    nats = n_bytes = 0.0
    for prompt in prompts:
        logits = engine.score(prompt)[:-1].astype(np.float64)
        top = logits.max(axis=1, keepdims=True)
        log_sum = (top + np.log(np.exp(logits - top).sum(axis=1, keepdims=True)))[:, 0]
        nats += float((log_sum - logits[np.arange(len(logits)), prompt[1:]]).sum())
        n_bytes += len(logits) * 3.2
    return nats / np.log(2) / n_bytes


def test_canonical_costs_at_most_half_a_percent_of_bits_per_byte(open_engine, prompts):
    texts = [tuple(p["ids"][:96]) for p in prompts]
    wide, coded = (bits_per_byte(open_engine(mode)[0], texts) for mode in ("wide", "canonical"))
    assert 0.4 < wide < 1.2
    assert abs(coded / wide - 1) <= 0.005
    assert coded != wide


@pytest.mark.slow
def test_canonical_costs_at_most_half_a_percent_on_the_whole_prompts(open_engine, prompts):
    texts = [tuple(p["ids"]) for p in prompts]
    wide, coded = (bits_per_byte(open_engine(mode)[0], texts) for mode in ("wide", "canonical"))
    assert abs(coded / wide - 1) <= 0.005
