"""Steps that look back: a window of any width, a verified window and its commit, against one token at a time.

The rows of a segment are one session's consecutive tokens; every cut of them into windows must give the same bits, in the
results and in the state left behind.
"""

import numpy as np
import pytest

from strata.cpu_pool.team import Team
from strata.host import gdn, ngrams
from tests.oracle import operations as oracle
from tests.unit.host.cases_gdn import CHANNELS, CONV, NO_HASHES, QK_HEADS, READ_SCALE, TAPS, V_HEADS, S, make_scan
from tests.unit.host.cases_ngrams import DEPTH, DILATION, END, MULTIPLIERS, N_BIGRAMS, OFFSETS, SIZES, C, H
from tests.unit.host.cases_ngrams import CONV as NGRAM_CONV
from tests.unit.host.cases_streams import normal
from tests.unit.host.operation import ROW_COUNTS
from tests.unit.numerics.bounds import LONG_CHAIN, equal_bits, relative_error
from tests.unit.numerics.stranger import gdn as plain
from tests.unit.numerics.stranger import ngrams as plain_ngrams

MOST = ROW_COUNTS[-1]
CONTROL = Team(1).control
SLOTS = 3
INPUTS = make_scan(np.random.default_rng(11), MOST)
INPUTS["memory"] = normal(np.random.default_rng(12), SLOTS, V_HEADS, S, S)
U, TAIL = normal(np.random.default_rng(13), MOST, CHANNELS), normal(np.random.default_rng(14), SLOTS, TAPS - 1, CHANNELS)


def segments(*parts: tuple[int, int]) -> tuple[np.ndarray, ...]:
    """(slot, rows) pairs -> segment_of_row, first, count, slot."""
    count = np.array([n for _, n in parts], np.int32)
    first = (np.cumsum(count) - count).astype(np.int32)
    return np.repeat(np.arange(len(parts), dtype=np.int32), count), first, count, np.array([slot for slot, _ in parts], np.int32)


def scan(rows, memory, *parts, keep=True) -> np.ndarray:
    """Scan rows (an index into INPUTS) laid out as segments; the memory is changed where kept."""
    _, first, count, slot = segments(*parts)
    w, g, beta = (np.ascontiguousarray(INPUTS[name][rows]) for name in ("w", "g", "beta"))
    o = np.empty((len(w), V_HEADS * S), np.float32)
    gdn.scan(CONTROL, w, g, beta, memory, first, count, slot, keep, QK_HEADS, READ_SCALE, o, NO_HASHES)
    return o


@pytest.fixture(scope="module")
def token_by_token() -> tuple[np.ndarray, list[np.ndarray]]:
    """Results and memories (of slot 1) of the scan run one row at a time."""
    memory, results, memories = INPUTS["memory"].copy(), [], []
    for row in range(MOST):
        results.append(scan([row], memory, (1, 1)))
        memories.append(memory[1].copy())
    return np.concatenate(results), memories


@pytest.mark.parametrize("n", ROW_COUNTS)
def test_a_scan_of_any_width_is_the_scan_token_by_token(n, token_by_token):
    results, memories = token_by_token
    memory = INPUTS["memory"].copy()
    found = scan(range(n), memory, (1, n))
    assert equal_bits(found, results[:n]) and equal_bits(memory[1], memories[n - 1])
    assert equal_bits(memory[[0, 2]], INPUTS["memory"][[0, 2]])


@pytest.mark.parametrize("chunk", [1, 7, 32, 100])
def test_a_scan_in_chunks_is_the_scan_in_one(chunk, token_by_token):
    memory = INPUTS["memory"].copy()
    found = [scan(range(at, min(at + chunk, MOST)), memory, (1, min(chunk, MOST - at))) for at in range(0, MOST, chunk)]
    assert equal_bits(np.concatenate(found), token_by_token[0]) and equal_bits(memory[1], token_by_token[1][-1])


def test_a_scan_beside_other_sessions_is_the_scan_alone(token_by_token):
    memory = INPUTS["memory"].copy()
    memory[0], memory[2] = np.nan, 3e38
    rows = [200, 201, *range(9), 210]
    found = scan(rows, memory, (0, 2), (1, 9), (2, 1))
    assert equal_bits(found[2:11], token_by_token[0][:9]) and equal_bits(memory[1], token_by_token[1][8])


def test_the_scan_agrees_with_float64_after_257_tokens(token_by_token):
    q, k, v = oracle.gdn_split(INPUTS["w"], QK_HEADS, V_HEADS, S)
    o, memory = oracle.gdn_scan(q, k, v, INPUTS["g"], INPUTS["beta"], INPUTS["memory"][1])
    assert relative_error(token_by_token[0], o.reshape(MOST, -1)) < LONG_CHAIN
    assert relative_error(token_by_token[1][-1], memory) < LONG_CHAIN


def test_the_scan_has_the_strangers_bits_after_40_tokens(token_by_token):
    o, memory = plain.scanned(INPUTS["w"][:40], INPUTS["g"][:40], INPUTS["beta"][:40], INPUTS["memory"][1], QK_HEADS)
    assert equal_bits(o, token_by_token[0][:40]) and equal_bits(memory, token_by_token[1][39])


@pytest.mark.parametrize("width", range(1, 9))
def test_a_verified_window_leaves_the_memory_alone_and_its_commit_keeps_a_prefix(width, token_by_token):
    results, memories = token_by_token
    for kept in range(width + 1):
        memory, tail = INPUTS["memory"].copy(), TAIL.copy()
        found = scan(range(width), memory, (1, width), keep=False)
        assert equal_bits(found, results[:width]) and equal_bits(memory, INPUTS["memory"])
        _, first, _, slot = segments((1, width))
        w, g, beta = (INPUTS[name][:width] for name in ("w", "g", "beta"))
        gdn.commit(w, g, beta, U[:width], memory, tail, first, slot, np.array([kept], np.int32), QK_HEADS)
        assert equal_bits(memory[1], memories[kept - 1] if kept else INPUTS["memory"][1])
        assert equal_bits(tail[1], np.concatenate((TAIL[1], U[:kept]))[-(TAPS - 1) :])
        assert equal_bits(memory[[0, 2]], INPUTS["memory"][[0, 2]]) and equal_bits(tail[[0, 2]], TAIL[[0, 2]])


def test_slots_that_keep_different_numbers_of_rows_do_not_disturb_each_other(token_by_token):
    memory, tail = INPUTS["memory"].copy(), TAIL.copy()
    memory[0] = memory[2] = INPUTS["memory"][1]
    rows = [*range(4), *range(4), *range(4)]
    _, first, _, slot = segments((2, 4), (0, 4), (1, 4))
    w, g, beta = (INPUTS[name][rows] for name in ("w", "g", "beta"))
    gdn.commit(w, g, beta, U[rows], memory, tail, first, slot, np.array([0, 3, 1], np.int32), QK_HEADS)
    assert equal_bits(memory[2], INPUTS["memory"][1])
    assert equal_bits(memory[0], token_by_token[1][2]) and equal_bits(memory[1], token_by_token[1][0])


def test_memory_entries_below_two_to_the_minus_100_are_stored_as_zero():
    memory = np.full((1, V_HEADS, S, S), 2.0**-99, np.float32)
    w, g, beta = np.zeros((1, CHANNELS), np.float32), np.full((1, V_HEADS), 0.5, np.float32), np.zeros((1, V_HEADS), np.float32)
    _, first, count, slot = segments((0, 1))
    o = np.empty((1, V_HEADS * S), np.float32)
    for expected in (2.0**-100, 0.0, 0.0):
        gdn.scan(CONTROL, w, g, beta, memory, first, count, slot, True, QK_HEADS, READ_SCALE, o, NO_HASHES)
        assert equal_bits(memory, np.full_like(memory, expected))


def test_a_negative_entry_that_is_too_small_becomes_plus_zero():
    memory = np.full((1, V_HEADS, S, S), -(2.0**-100), np.float32)
    w, g, beta = np.zeros((1, CHANNELS), np.float32), np.full((1, V_HEADS), 0.5, np.float32), np.zeros((1, V_HEADS), np.float32)
    gdn.commit(w, g, beta, np.zeros((1, CHANNELS), np.float32), memory, TAIL.copy(), *(x[:1] for x in (np.zeros(1, np.int32),) * 2),
               np.ones(1, np.int32), QK_HEADS)  # fmt: skip
    assert equal_bits(memory, np.zeros_like(memory))


def convolve(rows, tail, *parts) -> np.ndarray:
    segment_of_row, first, count, slot = segments(*parts)
    out = np.empty((len(rows), CHANNELS), np.float32)
    u = np.ascontiguousarray(U[rows])
    gdn.convolve(CONTROL, u, tail, CONV, segment_of_row, first, slot, out)
    gdn.keep_tail(u, tail, first, slot, count)
    return out


@pytest.mark.parametrize("n", ROW_COUNTS)
def test_a_convolution_of_any_width_is_the_one_over_the_whole_history(n):
    tail = TAIL.copy()
    expected = plain.silu(plain.convolved(U[:n], TAIL[1], CONV))
    assert equal_bits(convolve(range(n), tail, (1, n)), expected)
    assert equal_bits(tail[1], np.concatenate((TAIL[1], U[:n]))[-(TAPS - 1) :]) and equal_bits(tail[[0, 2]], TAIL[[0, 2]])


@pytest.mark.parametrize("chunk", [1, 2, 3, 4, 7, 32])
def test_a_convolution_in_chunks_is_the_one_in_one(chunk):
    tail = TAIL.copy()
    found = [convolve(range(at, min(at + chunk, 64)), tail, (1, min(chunk, 64 - at))) for at in range(0, 64, chunk)]
    assert equal_bits(np.concatenate(found), plain.silu(plain.convolved(U[:64], TAIL[1], CONV)))


def test_rows_of_several_segments_take_their_own_history():
    tail = TAIL.copy()
    found = convolve([0, 1, 5, 9, 10, 11, 12], tail, (2, 2), (0, 1), (1, 4))
    for rows, slot, at in (([0, 1], 2, 0), ([5], 0, 2), ([9, 10, 11, 12], 1, 3)):
        assert equal_bits(found[at : at + len(rows)], plain.silu(plain.convolved(U[rows], TAIL[slot], CONV)))


def ngram_convolve(rows, tail, *parts) -> np.ndarray:
    segment_of_row, first, count, slot = segments(*parts)
    generator = np.random.default_rng(15)
    inputs, residual = normal(generator, 64, C * H)[rows], np.zeros((len(rows), C, H), np.float32)
    ngrams.convolve_add(residual, np.zeros((len(rows), C * H), np.float32), inputs, tail, NGRAM_CONV, DILATION, segment_of_row, first, slot)
    gdn.keep_tail(inputs, tail, first, slot, count)
    return residual


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 9, 10, 32])
def test_the_n_gram_convolution_in_chunks_is_the_one_in_one(chunk):
    tail = normal(np.random.default_rng(16), SLOTS, DEPTH, C * H)
    before, inputs = tail[1].copy(), normal(np.random.default_rng(15), 64, C * H)
    found = [ngram_convolve(range(at, min(at + chunk, 40)), tail, (1, min(chunk, 40 - at))) for at in range(0, 40, chunk)]
    whole = plain.convolved(inputs[:40], before, NGRAM_CONV, DILATION)
    expected = plain_ngrams.added(np.zeros((40, C, H), np.float32), np.zeros((40, C, H), np.float32), whole)
    assert equal_bits(np.concatenate(found), expected)
    assert equal_bits(tail[1], np.concatenate((before, inputs[:40]))[-DEPTH:])


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 16])
def test_n_grams_reach_back_over_windows_and_stop_at_an_end_token(chunk):
    generator = np.random.default_rng(17)
    tokens = generator.integers(0, 4096, 32).astype(np.int32)
    tokens[[3, 9, 10, 20]] = END
    history, found = np.full((SLOTS, 2), -1, np.int32), []
    for at in range(0, 32, chunk):
        part = np.ascontiguousarray(tokens[at : at + chunk])
        segment_of_row, first, count, slot = segments((1, len(part)))
        out = np.empty((len(part), len(SIZES)), np.int64)
        ngrams.table_rows(part, segment_of_row, first, slot, history, END, MULTIPLIERS, SIZES, OFFSETS, N_BIGRAMS, out)
        ngrams.keep_history(part, first, slot, count, history)
        found.append(out)
    expected = oracle.ple_hash_rows(tokens, (), MULTIPLIERS, SIZES, OFFSETS, N_BIGRAMS, END)
    assert np.array_equal(np.concatenate(found), expected)
    assert history.tolist() == [[-1, -1], [tokens[31], tokens[30]], [-1, -1]]


@pytest.mark.parametrize("kept", range(5))
def test_a_history_keeps_only_the_kept_tokens(kept):
    history, tokens = np.array([[8, 7]], np.int32), np.array([1, 2, 3, 4], np.int32)
    _, first, _, slot = segments((0, 4))
    ngrams.keep_history(tokens, first, slot, np.array([kept], np.int32), history)
    assert history.tolist() == [[7, 8, 1, 2, 3, 4][kept : kept + 2][::-1]]
