"""The experts of a few rows on a card (gate and up to codes, down; router and grouping) against the host, bit by bit."""

import numpy as np

from strata.formats.contract import WeightFormat
from strata.formats.table import by_name
from strata.host import experts as host
from strata.model.config import ModelConfig
from tests.gpu.checks_small import router_logits
from tests.gpu.geometry import CodedOutput, flat, read, run
from tests.gpu.support import (
    GuardedOutput, HostCoded, assert_same_bits, coded_on_host, floats_on_host, packed_weights, padded_bytes, product_on_host,
    random_float_weights, random_rows, turned,
)

N_EXPERTS, SPARE = 9, 3


def chosen_experts(seed: int, n_rows: int, n_used: int, n_experts: int = N_EXPERTS) -> np.ndarray:
    """Return int32 [n_rows, n_used]: the odd rows choose what the row before chose, others at random; within a row no expert twice."""
    generator = np.random.default_rng(seed)
    rows = [generator.permutation(n_experts)[:n_used] for _ in range(n_rows)]
    return np.array([np.sort(rows[row - 1]) if row % 2 else rows[row] for row in range(n_rows)], np.int32)


class Lists:
    """Grouped entries on the host, and on a card with room for SPARE more experts, whose numbers would be wrong to use."""

    def __init__(self, card, ids: np.ndarray) -> None:
        from strata.cuda.packed.products import make_lists

        n = ids.size
        experts, starts, self.entry_rows = np.empty(n, np.int32), np.empty(n + 1, np.int32), np.empty(n, np.int32)
        self.entry_of = np.empty(ids.shape, np.int32)
        self.n_listed = host.group_entries(ids, experts, starts, self.entry_rows, self.entry_of, np.empty(N_EXPERTS, np.int32))
        self.experts, self.starts = experts[: self.n_listed], starts[: self.n_listed + 1]
        self.on_card = make_lists(card, "lists", self.n_listed + SPARE, n)
        on_card = self.on_card
        for array, values, spare in (
            (on_card.experts, self.experts, 1 << 20), (on_card.starts, self.starts, n), (on_card.entry_rows, self.entry_rows, 1 << 20),
        ):
            whole = np.full(array.size, spare, np.int32)
            whole[: len(values)] = values
            array.copy_to_device(whole)
        self.on_card.n_listed.copy_to_device(np.array([self.n_listed], np.int32))


def _bank(card, form: WeightFormat, seed: int, n_out: int, n_in: int, n_experts: int):
    """Return packed weights on the host and on the card."""
    from strata.cuda.packed.products import Packed

    raw = packed_weights(form, seed, n_out, n_in, n_experts=n_experts)
    expert_bytes = n_out * (n_in // form.block_weights) * form.block_bytes
    return raw, Packed(flat(card, raw), form.type_id, n_out, n_in, expert_bytes)


def _hidden(control, form, raws, n_out: int, coded: HostCoded, experts, starts, entry_rows) -> np.ndarray:
    gate, up = (product_on_host(control, form, raw, n_out, coded, experts, starts, entry_rows) for raw in raws)
    host.activate(gate, up)
    return gate


def check_gate_up(
    card, control, form: WeightFormat, n_in: int, width: int, n_rows: int, n_used: int, parts: str = "both", shared_form: WeightFormat | None = None
) -> None:
    """The hidden rows' codes of listed experts and the shared one (of `form` too, if not told), in one launch or only one of the two kinds."""
    from strata.cuda.experts.expert_products import Experts, launch_gate_up
    from strata.cuda.packed.products import Coded

    lists, x = Lists(card, chosen_experts(n_rows, n_rows, n_used)), random_rows(n_rows, n_rows, n_in)
    coded = coded_on_host(control, x)
    listed = [_bank(card, form, 20 + i, width, n_in, N_EXPERTS) for i in range(2)]
    common_form = shared_form or form
    shared = [_bank(card, common_form, 30 + i, width, n_in, 1) for i in range(2)]
    own = _hidden(control, form, [raw for raw, _ in listed], width, coded, lists.experts, lists.starts, lists.entry_rows)
    common = _hidden(control, common_form, [raw for raw, _ in shared], width, coded, [0], [0, n_rows], np.arange(n_rows))
    placed = Coded(*(flat(card, a) for a in (coded.codes, turned(coded.codes), coded.scales, coded.sums)), n_rows, n_in)
    hidden, wanted = CodedOutput(card, len(own) + n_rows, width), np.concatenate((own, common))
    sides = {"both": [(True, True)], "two launches": [(True, False), (False, True)]}[parts]
    for has_listed, has_shared in sides:
        experts = Experts(
            n_rows, lists.on_card, tuple(m for _, m in listed) if has_listed else None, tuple(m for _, m in shared) if has_shared else None,
            len(own),
        )
        # Gate stands in for the down that is fetched ahead.
        launch_gate_up(card, experts, placed, hidden.coded, downs=(listed[0][1], shared[0][1])).go()
    card.synchronise()
    hidden.check(f"{form.name}, {n_rows} rows", control, wanted)


def check_down(
    card, control, form: WeightFormat, width: int, n_out: int, n_rows: int, n_used: int, parts: str = "both", shared_form: WeightFormat | None = None
) -> None:
    """The outputs of listed experts and the shared one, reading the lists ahead and not; nothing is written beside them."""
    from strata.cuda.experts.expert_products import Experts, launch_down
    from strata.cuda.packed.products import Coded

    lists = Lists(card, chosen_experts(n_rows, n_rows, n_used))
    n_entries = n_rows * n_used
    coded = coded_on_host(control, random_rows(50 + n_rows, n_entries + n_rows, width))
    (raw, listed), (shared_raw, shared) = _bank(card, form, 40, n_out, width, N_EXPERTS), _bank(card, shared_form or form, 41, n_out, width, 1)
    own = product_on_host(control, form, raw, n_out, coded, lists.experts, lists.starts, np.arange(n_entries))
    common = product_on_host(control, shared_form or form, shared_raw, n_out, coded, [0], [0, n_rows], n_entries + np.arange(n_rows))
    placed = Coded(*(flat(card, a) for a in (coded.codes, turned(coded.codes), coded.scales, coded.sums)), n_entries + n_rows, width)
    sides = {"both": [(True, True)], "two launches": [(True, False), (False, True)]}[parts]
    for ahead in (False, True):
        out = GuardedOutput(card, (n_entries + n_rows) * n_out)
        for has_listed, has_shared in sides:
            experts = Experts(n_rows, lists.on_card, (listed,) if has_listed else None, (shared,) if has_shared else None, n_entries)
            launch_down(card, experts, placed, out.inside, ahead=ahead).go()
        card.synchronise()
        assert_same_bits(f"{form.name}, {n_rows} rows, ahead: {ahead}", out.read((n_entries + n_rows, n_out)), np.concatenate((own, common)))


def _extreme_logits(seed: int, n_rows: int, n_experts: int) -> np.ndarray:
    """The largest and smallest finite numbers of either sign that bfloat16 has, and zeros."""
    numbers = np.array([0x7F7F0000, 0xFF7F0000, 0x00800000, 0x80800000, 0, 0x3F800000], np.uint32).view(np.float32)
    return np.random.default_rng(seed).choice(numbers, (n_rows, n_experts))


LOGITS = {
    "special": router_logits, "equal": lambda seed, *shape: np.full(shape, 0.5, np.float32), "extreme": _extreme_logits,
    "rising": lambda seed, n_rows, n_experts: np.tile(np.arange(n_experts, dtype=np.float32) // 8, (n_rows, 1)),
}
"""Logits by kind: ties, infinities and NaN; one tie of all; see above; runs of eight equal ones, the best last."""


def check_router(card, control, config: ModelConfig, type_name: str, n_rows: int, kind: str = "") -> None:
    """Logits, shared gate, choice and grouped entries in one launch, twice: the posted words must be empty again.

    `kind` names LOGITS that activations and weights make; random ones where it is empty.
    """
    from strata.cuda.experts.router import launch_router
    from strata.cuda.machine.posting import EMPTY
    from strata.cuda.packed.products import make_lists

    c, n, n_in = config, n_rows, config.hidden
    x = random_rows(60 + n, n, n_in)
    router, shared = random_float_weights(type_name, 61, c.n_experts, n_in), random_float_weights(type_name, 62, 1, n_in)
    if kind:
        x, router = np.zeros_like(x), np.zeros_like(router)
        x[np.arange(n), np.arange(n)] = 1
        values = LOGITS[kind](7, n, c.n_experts).T
        router[:, :n] = (values.view(np.uint32) >> 16).astype(np.uint16) if type_name == "BF16" else values
    logits, gate = floats_on_host(control, type_name, router, x), floats_on_host(control, type_name, shared, x)
    ids, weights = np.empty((n, c.n_used), np.int32), np.empty((n, c.n_used), np.float32)
    host.route(logits, ids, weights)
    experts, starts = np.empty(ids.size, np.int32), np.empty(ids.size + 1, np.int32)
    entry_rows, entry_of = np.empty(ids.size, np.int32), np.empty_like(ids)
    n_listed = host.group_entries(ids, experts, starts, entry_rows, entry_of, np.empty(c.n_experts, np.int32))
    lists, posted = make_lists(card, "lists", c.n_experts, ids.size), flat(card, np.full(n * c.n_experts, EMPTY))
    placed = [flat(card, padded_bytes(w)) for w in (router, shared)]
    for turn in ("first", "second"):
        what = f"{type_name}, {n} rows, {turn} launch"
        out_logits, out_gate, out_weights = (GuardedOutput(card, size) for size in (n * c.n_experts, n, ids.size))
        got_ids, got_entry_of = flat(card, ids * 0 - 9), flat(card, entry_of * 0 - 9)
        run(card, launch_router(
            card, c, type_name, *placed, n_in, flat(card, x), n, out_logits.inside, out_gate.inside, posted, got_ids, out_weights.inside,
            lists, got_entry_of,
        ))
        assert_same_bits(f"{what}: logits", out_logits.read(logits.shape), logits)
        assert_same_bits(f"{what}: shared gate", out_gate.read(gate.shape), gate)
        assert np.array_equal(read(got_ids, *ids.shape), ids), f"{what}: ids"
        assert_same_bits(f"{what}: weights", out_weights.read(weights.shape), weights)
        assert read(lists.n_listed, 1)[0] == n_listed, what
        assert np.array_equal(lists.experts.copy_to_host()[:n_listed], experts[:n_listed]), f"{what}: experts"
        got = lists.starts.copy_to_host()
        assert np.array_equal(got[: n_listed + 1], starts[: n_listed + 1]) and (got[n_listed:] == ids.size).all(), f"{what}: starts"
        assert np.array_equal(lists.entry_rows.copy_to_host(), entry_rows), f"{what}: entry rows"
        assert np.array_equal(read(got_entry_of, *ids.shape), entry_of), f"{what}: entries"
        assert (posted.copy_to_host() == EMPTY).all(), f"{what}: words left"


def _float_matrix(card, type_name: str, values: np.ndarray):
    from strata.cuda.memory.placed import FloatMatrix

    return FloatMatrix(flat(card, padded_bytes(values)), type_name, *values.shape)


def check_block(card, control, config: ModelConfig, forms: dict[str, WeightFormat], n_rows: int, n_launches: int) -> None:
    """A whole experts block as the recorder lists it, combined; `forms` by weight name, with router types "router", "shared_router"."""
    from strata.cuda.experts.combine import launch_combine
    from strata.cuda.memory.placed import Part
    from strata.cuda.memory.workspace import Workspace
    from strata.cuda.packed.products import Coded
    from strata.cuda.stage.record_moe import MoeRecorder

    c, n, launches = config, n_rows, []
    shapes = {
        "gate": (c.expert_ff, c.hidden, c.n_experts), "up": (c.expert_ff, c.hidden, c.n_experts), "down": (c.hidden, c.expert_ff, c.n_experts),
        "shared_gate": (c.shared_ff, c.hidden, 1), "shared_up": (c.shared_ff, c.hidden, 1), "shared_down": (c.hidden, c.shared_ff, 1),
    }
    banks = {name: _bank(card, forms[name], 70 + i, *shape) for i, (name, shape) in enumerate(shapes.items())}
    floats = {
        name: random_float_weights(forms[name], 80, n_out, c.hidden) for name, n_out in (("router", c.n_experts), ("shared_router", 1))
    }
    x = random_rows(90 + n, n, c.hidden)
    coded = coded_on_host(control, x)
    logits, gate = (floats_on_host(control, forms[name], floats[name], x) for name in floats)
    ids, weights = np.empty((n, c.n_used), np.int32), np.empty((n, c.n_used), np.float32)
    host.route(logits, ids, weights)
    experts, starts = np.empty(ids.size, np.int32), np.empty(ids.size + 1, np.int32)
    entry_rows, entry_of = np.empty(ids.size, np.int32), np.empty_like(ids)
    n_listed = host.group_entries(ids, experts, starts, entry_rows, entry_of, np.empty(c.n_experts, np.int32))
    lists = {"": (experts[:n_listed], starts[: n_listed + 1], entry_rows), "shared_": ([0], [0, n], np.arange(n, dtype=np.int32))}
    outputs = {}
    for kind, (listed, begins, rows) in lists.items():
        first, second = (
            product_on_host(control, forms[kind + name], banks[kind + name][0], shapes[kind + name][0], coded, listed, begins, rows)
            for name in ("gate", "up")
        )
        host.activate(first, second)
        inner, down = coded_on_host(control, first), kind + "down"
        outputs[kind] = product_on_host(control, forms[down], banks[down][0], c.hidden, inner, listed, begins, np.arange(len(rows)))
    wanted = np.empty((n, c.hidden), np.float32)
    host.combine(outputs[""], entry_of, weights, outputs["shared_"], gate, wanted)

    def add(made):
        launches.extend(made if isinstance(made, tuple) else (made,))

    placed = Coded(*(flat(card, a) for a in (coded.codes, turned(coded.codes), coded.scales, coded.sums)), n, c.hidden)
    part = Part({name: bank for name, (_, bank) in banks.items()} | {name: _float_matrix(card, forms[name], w) for name, w in floats.items()})
    combined = MoeRecorder(card, c, Workspace(card, "test"), n, add).block(part, flat(card, x), placed)
    out = GuardedOutput(card, n * c.hidden)
    assert len(launches) == n_launches, f"{len(launches)} launches, wanted {n_launches}"
    for _ in range(2):
        run(card, tuple(launches), launch_combine(card, c.hidden, combined, n, out.inside))
        assert_same_bits(f"experts of {n} rows", out.read((n, c.hidden)), wanted)


def forms_of(experts: str, down: str, shared: str, shared_down: str, up: str = "", router: str = "BF16", shared_router: str = "BF16") -> dict:
    """Return formats for `check_block`; `up` where it is not that of gate."""
    names = {"gate": experts, "up": up or experts, "down": down, "shared_gate": shared, "shared_up": shared, "shared_down": shared_down}
    return {name: by_name(form) for name, form in names.items()} | {"router": router, "shared_router": shared_router}
