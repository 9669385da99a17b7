"""Small arrays in blocks: pieces never overlap, what is dropped is found again, and every byte of the blocks has a purpose."""

import gc
import itertools
import random
import weakref
from queue import SimpleQueue
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.cuda.card.small_arrays import LARGE, PAGE_BYTES, SHARED_PAGES, STEP, Block, SmallArrays, allocated_bytes

MOST_STEPS = LARGE // STEP


class Page:
    """Memory that the stand-in for the driver has given away."""


class Card:
    """Small arrays of a card that is not there: counts its waits, refuses the pages behind `most`."""

    def __init__(self, most: int | None = None) -> None:
        self.taken: dict[str, int] = {}
        self.arrays, self.most, self.n_waits = SmallArrays(self.taken), most, 0
        self.pages: weakref.WeakSet[Page] = weakref.WeakSet()
        self._addresses = itertools.count(PAGE_BYTES, PAGE_BYTES)

    def page(self, purpose: str) -> tuple[Page, int]:
        if self.most is not None and len(self.pages) >= self.most:
            raise MemoryError(purpose)
        page = Page()
        self.pages.add(page)
        return page, next(self._addresses)

    def wait(self) -> None:
        self.n_waits += 1

    def carve(self, purpose: str, wanted: int):
        self.arrays.settle(self.wait)
        return self.arrays.carve(purpose, allocated_bytes(wanted), self.page)

    def tidy(self) -> None:
        self.arrays.tidy(self.wait)

    def give_back(self, purpose: str) -> None:
        """As `CudaDevice.give_back`."""
        self.taken.pop(purpose, None)
        self.arrays.give_back(purpose)
        self.tidy()

    def check(self, pieces) -> None:
        """Require that pieces lie apart, gaps and pieces make up the blocks, and that what is taken is what the pages are."""
        assert len(self.pages) == len(self.arrays.blocks)
        assert sum(self.taken.values()) == PAGE_BYTES * len(self.pages) and all(n > 0 for n in self.taken.values())
        for block in self.arrays.blocks:
            spans = [(p.first, p.first + p.n_bytes) for p in pieces if p.block is block] + block.gaps
            spans += [(first, first + n_bytes) for first, n_bytes, _ in block.dropped]
            at = 0
            for first, end in sorted(spans):
                assert first == at < end and first % STEP == 0
                at = end
            assert at == PAGE_BYTES
            assert all(a[1] < b[0] for a, b in itertools.pairwise(block.gaps)), "gaps that touch are one"


operations = st.lists(st.one_of(
    st.tuples(st.just("carve"), st.integers(1, MOST_STEPS), st.sampled_from("abc")),
    st.tuples(st.just("drop"), st.integers(0, 1 << 16), st.just("")),
    st.tuples(st.just("tidy"), st.just(0), st.just("")),
    st.tuples(st.just("give back"), st.just(0), st.sampled_from("abc")),
), max_size=60)


@settings(max_examples=200, deadline=None)
@given(operations)
def test_pieces_lie_apart_and_every_dropped_byte_is_found_again(steps):
    card, held = Card(), []
    for what, n, purpose in steps:
        if what == "carve":
            held.append((purpose, card.carve(purpose, n * STEP)))
        elif what == "drop" and held:
            del held[n % len(held)]
        elif what == "tidy":
            card.tidy()
        elif what == "give back":
            held = [(name, piece) for name, piece in held if name != purpose]
            card.give_back(purpose)
            assert purpose not in card.taken
        card.check([piece for _, piece in held])
    card.tidy()
    wanted = {name: sum(piece.n_bytes for other, piece in held if other == name) for name, _ in held}
    assert {name: n for name, n in card.taken.items() if name != SHARED_PAGES} == wanted
    assert not any(block.is_empty for block in card.arrays.blocks)
    held.clear()
    card.tidy()
    assert not card.taken and not card.pages and not card.arrays.blocks


@given(st.permutations(range(12)))
def test_a_block_is_whole_again_in_whatever_order_it_is_restored(order):
    block, size = Block(None, 0), 3 * STEP
    firsts = [block.carve(size) for _ in order]
    for i in order:
        block.restore(firsts[i], size)
    assert block.is_empty


def test_a_piece_lies_in_the_first_gap_that_takes_it():
    card = Card()
    pieces = [card.carve("a", n * STEP) for n in (2, 4, 1, 3, 1)]
    firsts = [piece.first // STEP for piece in pieces]
    assert firsts == [0, 2, 6, 7, 10]
    del pieces[3], pieces[1]
    assert card.carve("a", 3 * STEP).first == 2 * STEP
    assert pieces[0].address == PAGE_BYTES and card.carve("a", 5 * STEP).first == 11 * STEP


def test_what_was_dropped_is_used_again_behind_one_wait_and_not_within_keeping():
    card = Card()
    first, other = card.carve("a", 100), card.carve("a", 100)
    assert card.n_waits == 0
    at = first.address
    del first
    with card.arrays.keeping():
        with card.arrays.keeping():
            new = card.carve("b", 100)
        card.tidy()
        card.give_back("a")
        assert new.address not in (at, other.address) and card.n_waits == 0
        assert card.taken == {"b": STEP, SHARED_PAGES: PAGE_BYTES - STEP}
    assert card.carve("b", 100).address == at and card.n_waits == 1
    card.check([other, new])


def test_a_wait_that_fails_leaves_the_bytes_where_they_are():
    card = Card()
    first = card.carve("a", 100)
    at = first.address
    del first

    def fail() -> None:
        raise OSError("a kernel failed")

    for settle in (card.arrays.settle, card.arrays.tidy):
        with pytest.raises(OSError, match="kernel"):
            settle(fail)
        card.check([])
    assert card.carve("a", 100).address == at


def test_a_page_that_is_refused_changes_nothing():
    card = Card(most=1)
    held = [card.carve("a", LARGE - 1) for _ in range(2)]
    before = dict(card.taken)
    with pytest.raises(MemoryError, match="b"):
        card.carve("b", 1)
    assert card.taken == before == {"a": PAGE_BYTES}
    card.check(held)
    held.pop()
    assert card.carve("b", LARGE - 1).first == held[0].n_bytes


def test_pieces_of_a_purpose_that_was_given_back_are_shared_pages_until_they_are_dropped():
    card = Card()
    old = card.carve("a", 3 * STEP)
    card.give_back("a")
    assert card.taken == {SHARED_PAGES: PAGE_BYTES}
    new = card.carve("a", STEP)
    assert card.taken == {"a": STEP, SHARED_PAGES: PAGE_BYTES - STEP}
    del old
    card.tidy()
    assert card.taken == {"a": STEP, SHARED_PAGES: PAGE_BYTES - STEP} and card.arrays.blocks[0].gaps[0] == (0, 3 * STEP)
    card.check([new])


def test_large_arrays_of_a_purpose_stay_accounted_when_its_small_ones_go():
    card = Card()
    card.taken["a"] = 5 * PAGE_BYTES
    small = card.carve("a", 700)
    assert card.taken["a"] == 5 * PAGE_BYTES + 2 * STEP
    del small
    card.tidy()
    assert card.taken == {"a": 5 * PAGE_BYTES}


def test_shared_pages_cannot_be_given_back():
    card = Card()
    held = [card.carve("a", 1)]
    card.give_back(SHARED_PAGES)
    card.check(held)
    assert card.taken[SHARED_PAGES] == PAGE_BYTES - STEP


def test_blocks_outlive_the_card_only_as_long_as_their_pieces():
    card = Card()
    gc.disable()
    try:
        kept, gone = card.carve("a", LARGE - 1), [card.carve("a", LARGE - 1) for _ in range(2)]
        card.arrays = None
        assert len(card.pages) == 2
        gone.clear()
        assert len(card.pages) == 1
        del kept
        assert len(card.pages) == 0
    finally:
        gc.enable()


def test_a_thousand_sessions_opened_and_closed_leave_no_more_blocks_behind():
    generator, card = random.Random(1), Card()
    weights = [card.carve("weights", generator.randrange(1, LARGE >> generator.randrange(12))) for _ in range(400)]
    n_before, most = len(card.pages), [0, 0]
    live: dict[int, list] = {}
    for i in range(1000):
        own = [generator.randrange(1, LARGE >> generator.randrange(10)) for _ in range(40)]
        live[i] = [card.carve(f"session {i}", n) for n in own]
        while len(live) > 3 or live and generator.random() < 0.4:
            ended = generator.choice(list(live))
            del live[ended]
            card.give_back(f"session {ended}")
        most[i // 500] = max(most[i // 500], len(card.pages))
    live.clear()
    for name in list(card.taken):
        if name != "weights":
            card.give_back(name)
    card.check(weights)
    assert len(card.pages) == n_before and most[1] <= most[0]
    assert set(card.taken) == {"weights", SHARED_PAGES}


def test_pieces_that_other_threads_let_go_of_are_found_again():
    card, queue, n_seen = Card(), SimpleQueue(), 0

    def let_go() -> None:
        while queue.get() is not None:
            pass

    threads = [Thread(target=let_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for i in range(4000):
        queue.put(card.carve("ab"[i % 2], 1 + i * 977 % (LARGE >> 4)))
        n_seen = max(n_seen, len(card.pages))
    for _ in threads:
        queue.put(None)
    for thread in threads:
        thread.join()
    card.tidy()
    assert not card.taken and not card.pages and n_seen > 0


@pytest.mark.parametrize(("wanted", "taken"), [(0, 512), (1, 512), (513, 1024), ((1 << 20) - 1, 1 << 20), (1 << 20, 1 << 21), ((1 << 21) + 1, 1 << 22)])
def test_an_array_takes_whole_pages_from_a_mebibyte_on(wanted, taken):
    assert allocated_bytes(wanted) == taken
