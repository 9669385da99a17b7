"""Prompt chunks of a card in memory that is given to them: the bits of the host, whatever lay there, and decode windows beside them."""

import numpy as np
import pytest

from strata.batch.engine import Engine
from strata.batch.requests import Request
from tests.gpu.tier_pair import TierPair
from tests.unit.harness.scopes import scope, shipped

CONTEXT, RUBBISH = 512, 0xFF


def rows(*segments, is_prompt=False):
    from strata.rows import Segment, Window

    return Window.of([Segment(slot, start, tuple(range(start + 1, start + 1 + count))) for slot, start, count in segments], True, is_prompt=is_prompt)


@pytest.mark.parametrize("n_rows", [9, 40, 200])
def test_chunks_in_given_memory_have_the_bits_of_the_host(n_rows, card, control):
    from strata.cuda.memory.chunk_buffers import CardChunkLayout

    model = shipped()[0]
    with TierPair(card, model, control, 300, CONTEXT) as pair:
        layout = CardChunkLayout(model.config, CONTEXT)
        size = layout.bytes(n_rows)
        memory = card.empty("lent", size, np.uint8)
        pair.plain(rows((0, 0, 1)))
        for start in (0, n_rows):
            memory.copy_to_device(np.full(size, RUBBISH, np.uint8))
            pair.card.chunk_buffers = layout.buffers(n_rows, memory)
            pair.plain(rows((1, start, n_rows), is_prompt=True))
            pair.card.chunk_buffers = None
            memory.copy_to_device(np.full(size, RUBBISH, np.uint8))
            pair.plain(rows((0, 1 + start // n_rows, 1)))
        del memory
        card.give_back("lent")


def test_what_a_chunk_takes_beside_given_memory_does_not_grow_with_its_rows(card, control):
    from strata.cuda.memory.chunk_buffers import CardChunkLayout

    model = shipped()[0]
    with TierPair(card, model, control, 300, CONTEXT) as pair:
        layout, taken = CardChunkLayout(model.config, CONTEXT), []
        memory = card.empty("lent", layout.bytes(256), np.uint8)
        pair.card.chunk_buffers = layout.buffers(256, memory)
        for start, n_rows in ((0, 16), (16, 256)):
            pair.plain(rows((0, start, n_rows), is_prompt=True))
            taken.append(sum(n for name, n in card.taken.items() if name.startswith("buffers")))
        assert taken[1] - taken[0] < 64 * model.config.n_used * 256
        del memory
        card.give_back("lent")


@pytest.mark.parametrize("name", ["few-slots", "longer-than-chunk", "async"])
def test_an_engine_whose_cache_lends_slots_answers_as_one_that_holds_everything(name):
    from harness.suites import loans

    case = next(case for case in loans.cases(scope(devices="cuda:0", context=CONTEXT)) if case.name == name)
    found = []
    for arm in (case.left, case.right):
        with Engine(shipped()[0], arm.settings) as engine:
            batch = engine.generate([Request(item.prompt, 8) for item in case.workload.items])
            found.append([[emitted.row.digest for emitted in answer.emitted] for answer in batch.answers])
    assert found[0] == found[1] and batch.counters["lent_slots"] > 0 and batch.counters["refilled_experts"] > 0
