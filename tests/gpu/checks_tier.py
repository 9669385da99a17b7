"""The expert tier's kernels on a card (dispatch, fetch, meeting) against the host's dispatch, and its memory.

Used on a card (tests/gpu) and in the simulator (tests/sim).  Does not know: models.
"""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np

from strata.experts.dispatch import dispatch
from strata.experts.residency import ABSENT, Residency
from strata.host import experts as host
from strata.model.config import ModelConfig
from tests.gpu.geometry import flat, run
from tests.gpu.support import GuardedOutput, assert_same_bits, random_rows

LAYERS = 3
JUNK = -7


@dataclass(frozen=True, slots=True)
class Case:
    """A window of `n_rows` rows; how many experts are resident, and how many of the others cannot be fetched, in 256ths."""

    n_rows: int
    resident: int
    share: int
    ring: int
    unfetchable: int = 0


def chosen(seed: int, n_rows: int, c: ModelConfig) -> np.ndarray:
    """Return int32 [n_rows, K], no expert twice in a row; hot experts are shared by rows."""
    generator = np.random.default_rng(seed)
    heat = generator.permutation(c.n_experts)
    picks = np.argsort(generator.random((n_rows, c.n_experts)) * (1 + np.arange(c.n_experts)), axis=1)[:, : c.n_used]
    return heat[picks].astype(np.int32)


def tables_for(seed: int, case: Case, c: ModelConfig) -> tuple[np.ndarray, np.ndarray]:
    """Return (slot_of int32, sources int64 [.., 3]) of LAYERS layers."""
    generator = np.random.default_rng(seed)
    shape = LAYERS, c.n_experts
    slot_of = np.where(generator.integers(0, 256, shape) < case.resident, generator.integers(0, 1000, shape), ABSENT).astype(np.int32)
    can = generator.integers(0, 256, shape) >= case.unfetchable
    return slot_of, np.where(can, 4096, 0)[..., None].repeat(3, axis=2).astype(np.int64)


class RouterLists:
    """The router's lists on a card, for chosen ids."""

    def __init__(self, card, ids: np.ndarray, c: ModelConfig) -> None:
        from strata.cuda.packed.products import make_lists

        n = ids.size
        experts, starts, rows, self.of = np.zeros(c.n_experts, np.int32), np.full(c.n_experts + 1, n, np.int32), np.empty(n, np.int32), np.empty(ids.shape, np.int32)
        found, begins = np.empty(n, np.int32), np.empty(n + 1, np.int32)
        n_listed = host.group_entries(ids, found, begins, rows, self.of, np.empty(c.n_experts, np.int32))
        experts[:n_listed], starts[: n_listed + 1] = found[:n_listed], begins[: n_listed + 1]
        self.lists = make_lists(card, "lists", c.n_experts, n)
        for array, values in ((self.lists.experts, experts), (self.lists.starts, starts), (self.lists.entry_rows, rows), (self.lists.n_listed, np.array([n_listed], np.int32))):
            array.copy_to_device(values)
        self.ids, self.entry_of = flat(card, ids), flat(card, self.of)


def made_for(card, c: ModelConfig, n_entries: int):
    """Return what a dispatch fills, full of junk."""
    from strata.cuda.packed.products import make_lists
    from strata.cuda.tier.dispatching import SIZES, Dispatched

    lists = make_lists(card, "lists", c.n_experts, n_entries)
    for array in (lists.experts, lists.starts, lists.entry_rows):
        array.copy_to_device(np.full(array.size, JUNK, np.int32))
    junk = [flat(card, np.full(n, JUNK, np.int32)) for n in (n_entries, c.n_experts, SIZES)]
    return Dispatched(lists, *junk)


def check_dispatch(card, c: ModelConfig, case: Case, seed: int = 0) -> None:
    """Lists, message and log of a middle layer are those of `strata.experts.dispatch`, twice: the step goes on."""
    from strata.cuda.tier import mailbox as boxes
    from strata.cuda.tier.dispatching import ALL_ENTRIES, FETCHED, JOBS, OWN_ENTRIES, STEP, Tables, launch_dispatch

    n, layer, n_slots = case.n_rows, 1, 1000
    ids, (slot_of, sources) = chosen(seed, n, c), tables_for(seed, case, c)
    plan = dispatch(ids, slot_of[layer], sources[layer, :, 0] != 0, case.share, case.ring)
    router, made, box = RouterLists(card, ids, c), made_for(card, c, ids.size), boxes.Mailbox(card, c, LAYERS, "test")
    if box.areas(n) is None:
        box.grow(n)
    areas = box.areas(n)
    values = random_rows(seed, n, c.hidden)
    tables = Tables(flat(card, slot_of), flat(card, sources), flat(card, np.array([case.share], np.int32)))
    own, first_job = plan.n_cached + plan.n_fetched, int(plan.starts[plan.n_cached + plan.n_fetched])
    for turn in (1, 2):
        what = f"{case}, turn {turn}"
        run(card, launch_dispatch(card, box, layer, n, router.ids, router.lists, router.entry_of, flat(card, values), tables, n_slots, case.ring, made))
        places = np.where(np.arange(own) < plan.n_cached, plan.places[:own], plan.places[:own] + n_slots)
        got = {name: getattr(made.lists, name).copy_to_host() for name in ("experts", "starts", "entry_rows", "n_listed")}
        assert got["n_listed"][0] == own, what
        assert np.array_equal(got["experts"], np.concatenate((places, np.full(c.n_experts - own, -1)))), f"{what}: places"
        assert np.array_equal(got["starts"][: own + 1], plan.starts[: own + 1]) and (got["starts"][own:] == first_job).all(), f"{what}: starts"
        assert np.array_equal(got["entry_rows"], plan.rows), f"{what}: rows"
        assert np.array_equal(made.entry_of.copy_to_host().reshape(ids.shape), plan.entry_of), f"{what}: entries"
        assert np.array_equal(made.fetched.copy_to_host()[: plan.n_fetched], plan.experts[plan.n_cached : own]), f"{what}: fetched"
        sizes = made.sizes.copy_to_host()
        assert [sizes[i] for i in (STEP, JOBS, OWN_ENTRIES, ALL_ENTRIES, FETCHED)] == [turn, plan.n_jobs, first_job, ids.size, plan.n_fetched], what
        header, by_place = box.header(layer), plan.entries_by_place()
        wanted = [2 * turn + (plan.n_jobs > 0), n, len(plan.experts), plan.n_cached, plan.n_fetched, plan.n_jobs, by_place[2], by_place[0], by_place[1]]
        assert header[:9].tolist() == wanted and not header[9:].any() and not box.header(0).any(), f"{what}: message {header.tolist()}, wanted {wanted}"
        assert np.array_equal(areas.log.host[layer * ids.size : (layer + 1) * ids.size], ids.reshape(-1)), f"{what}: log"
        if plan.n_jobs:
            assert np.array_equal(areas.job_experts.host[: plan.n_jobs], plan.experts[own:]), f"{what}: jobs"
            assert np.array_equal(areas.job_starts.host[: plan.n_jobs + 1], plan.starts[own:] - first_job), f"{what}: starts of jobs"
            assert np.array_equal(areas.job_rows.host[: by_place[2]], plan.rows[first_job:]), f"{what}: rows of jobs"
            assert_same_bits(f"{what}: values", areas.values.host[: n * c.hidden].reshape(n, c.hidden), values)


def check_meeting(card, c: ModelConfig, n_rows: int, n_jobs_entries: int, answered: bool, stopped: bool = False, bound_ns: int = 10**8) -> None:
    """The waiting kernel copies the pool's outputs behind the card's own, or leaves and says why."""
    from strata.cuda.tier import mailbox as boxes
    from strata.cuda.tier.dispatching import SIZES, Dispatched
    from strata.cuda.tier.meeting_kernels import launch_meet

    layer, step, n_entries = 1, 5, n_rows * c.n_used
    own, box = n_entries - n_jobs_entries, boxes.Mailbox(card, c, LAYERS, "test")
    if box.areas(n_rows) is None:
        box.grow(n_rows)
    outputs, out = random_rows(3, n_jobs_entries, c.hidden), GuardedOutput(card, n_entries * c.hidden)
    sizes = np.zeros(SIZES, np.int32)
    sizes[:5] = step, n_jobs_entries, own, n_entries, 0
    box.areas(n_rows).outputs.host[: outputs.size] = outputs.reshape(-1)
    box.done.host[layer] = step if answered else step - 1
    box.stop.host[0] = boxes.ABORTED if stopped else boxes.RUNNING
    before = out.read((n_entries, c.hidden))
    run(card, launch_meet(card, box, layer, n_rows, Dispatched(None, None, None, flat(card, sizes)), out.inside, bound_ns))
    after = out.read((n_entries, c.hidden))
    assert_same_bits("the card's own entries", after[:own], before[:own])
    assert_same_bits("the pool's entries", after[own:], outputs if answered else before[own:])
    assert box.stop.host[0] == (boxes.ABORTED if stopped else boxes.RUNNING if answered or not n_jobs_entries else boxes.GAVE_UP)


def shapes_of(*sizes: int) -> SimpleNamespace:
    """Return banks whose experts have these bytes: gate, up, down."""
    return SimpleNamespace(**{name: SimpleNamespace(type_id=2, n_out=32, n_in=32, expert_bytes=size) for name, size in zip(("gate", "up", "down"), sizes, strict=True)})


def check_memory_and_fetch(card, c: ModelConfig, n_slots: int = 3, n_places: int = 2) -> None:
    """Slots and ring hold what was loaded, staged and fetched, and nothing lies beside it; what is taken adds up."""
    from strata.cuda.tier.dispatching import FETCHED, SIZES, Dispatched
    from strata.cuda.tier.expert_cache import CACHE, RING, CardExpertMemory
    from strata.cuda.tier.fetching import launch_fetch
    from strata.cuda.tier.tier_tables import TierTables

    generator = np.random.default_rng(1)
    layers = {1: shapes_of(48, 80, 4112), 2: shapes_of(16, 16, 208)}
    sizes = {layer: [getattr(shapes, part).expert_bytes for part in ("gate", "up", "down")] for layer, shapes in layers.items()}
    bank = {(layer, part, e): generator.integers(0, 256, n, np.uint8) for layer, own in sizes.items() for part, n in zip(("gate", "up", "down"), own, strict=True) for e in range(c.n_experts)}
    taken = dict(card.taken)
    memory = CardExpertMemory(card, layers, n_slots, n_places, lambda *key: bank[key])
    assert memory.slot_bytes == 4288
    new = {name: card.taken[name] - taken.get(name, 0) for name in (CACHE, RING)}
    assert new[RING] == n_places * memory.slot_bytes and new[CACHE] >= n_slots * memory.slot_bytes
    memory.buffer.copy_to_device(np.full(memory.buffer.size, 0xA5, np.uint8))
    memory.load(1, 4, 2)
    memory.stage(2, np.array([3, 0]))
    wanted = np.full((n_slots + n_places, memory.slot_bytes), 0xA5, np.uint8)

    def place(slot: int, layer: int, expert: int) -> None:
        whole = np.concatenate([bank[layer, part, expert] for part in ("gate", "up", "down")])
        wanted[slot, : whole.size] = whole

    place(2, 1, 4)
    place(3, 2, 3)
    place(4, 2, 0)
    assert np.array_equal(memory.buffer.copy_to_host().reshape(wanted.shape), wanted)
    assert all(np.array_equal(blob, bank[1, part, 4]) for part, blob in memory.saved(1, 2).items())
    assert memory.lendable(1).size == 2 * memory.slot_bytes
    gate, up, down = memory.matrices(1)
    assert (gate.expert_bytes, up.raw.size, down.raw.size) == (memory.slot_bytes, memory.buffer.size - 48, memory.buffer.size - 128)
    page_locked = np.concatenate([bank[1, part, e] for e in range(c.n_experts) for part in ("gate", "up", "down")] + [np.zeros(64, np.uint8)])
    shifted = page_locked[-page_locked.ctypes.data % 64 :][: sum(sizes[1]) * c.n_experts]
    shifted[:] = page_locked[: shifted.size].copy()
    address, each = card.register(page_locked), sum(sizes[1])
    assert address is not None, card.why_not_registered
    base = address + (shifted.ctypes.data - page_locked.ctypes.data)
    sources = np.zeros((3, c.n_experts, 3), np.int64)
    sources[1] = base + each * np.arange(c.n_experts)[:, None] + np.array([0, 48, 128])
    tier = SimpleNamespace(residency=Residency(3, c.n_experts, n_slots), sources=sources, sources_version=0, share=256)
    tables = TierTables(card, "test", (1, 2), c.n_experts)
    tables.refresh(tier)
    counts = np.zeros(SIZES, np.int32)
    counts[FETCHED] = 1
    run(card, launch_fetch(card, memory, 1, 0, c.n_experts, 5, tables.card, Dispatched(None, None, flat(card, np.array([2, 1], np.int32)), flat(card, counts))))
    place(3, 1, 2)
    assert np.array_equal(memory.buffer.copy_to_host().reshape(wanted.shape), wanted)
    card.unregister(page_locked)
    for purpose in (CACHE, RING):
        card.give_back(purpose)


def check_tables(card, c: ModelConfig) -> None:
    """Tables are sent when their version changes and not else; an address that cannot be loaded from counts as none."""
    from strata.cuda.tier.tier_tables import TierTables

    residency, sources = Residency(3, c.n_experts, 4), np.full((3, c.n_experts, 3), 1 << 20, np.int64)
    sources[1, 2] = 1 << 20, (1 << 20) + 8, 1 << 20
    tier = SimpleNamespace(residency=residency, sources=sources, sources_version=7, share=64)
    tables = TierTables(card, "test", (1, 2), c.n_experts)
    residency.settle(1, 3, 2)
    tables.refresh(tier)
    card.synchronise()
    assert np.array_equal(tables.card.slot_of.copy_to_host().reshape(2, -1), residency.slot_of[1:])
    seen = tables.card.sources.copy_to_host().reshape(2, -1, 3)
    assert not seen[0, 2].any() and (seen[0, 3] == 1 << 20).all() and tables.card.share.copy_to_host()[0] == 64
    sources[1, 3] = 0
    residency.slot_of[2, 0] = 3
    tables.refresh(tier)
    card.synchronise()
    assert (tables.card.sources.copy_to_host().reshape(2, -1, 3)[0, 3] == 1 << 20).all() and tables.card.slot_of.copy_to_host()[c.n_experts] == ABSENT
    residency.version += 1
    tier.sources_version, tier.share = 8, 0
    tables.refresh(tier)
    card.synchronise()
    assert not tables.card.sources.copy_to_host().reshape(2, -1, 3)[0, 3].any() and tables.card.slot_of.copy_to_host()[c.n_experts] == 3
    assert tables.card.share.copy_to_host()[0] == 0


def check_routing_log(card, c: ModelConfig, n_rows: int) -> None:
    """The counts are those of the chosen ids, per layer and kind of window, window by window."""
    from strata.cuda.memory.workspace import Workspace
    from strata.cuda.tier.routing_log import RoutingLog
    from strata.rows import Segment, Window

    layers, launches, work = (4, 5), [], Workspace(card, "test")
    log, routed = RoutingLog(card, c, layers, work), np.zeros((2, c.n_layers, c.n_experts), np.int32)
    ids = [chosen(layer, n_rows, c) for layer in layers]
    for layer, own in zip(layers, ids, strict=True):
        log.recorder(layer, work, n_rows, launches.append).dispatch(None, flat(card, own), None, None, None)
    for is_prompt, times in ((False, 2), (True, 3)):
        before = routed.copy()
        window = Window.of([Segment(0, 0, (0,) * n_rows)], True, is_prompt=is_prompt)
        log.begin()
        log.sender(window)(launches)
        card.synchronise()
        for _ in range(times):
            log.end(window, routed)
        for layer, own in zip(layers, ids, strict=True):
            before[int(is_prompt), layer] += times * np.bincount(own.reshape(-1), minlength=c.n_experts).astype(np.int32)
        assert np.array_equal(routed, before)
    work.close()


def with_experts(c: ModelConfig, n_experts: int, n_used: int, hidden: int) -> ModelConfig:
    """Return a geometry with another number of experts."""
    return replace(c, n_experts=n_experts, n_used=n_used, hidden=hidden)
