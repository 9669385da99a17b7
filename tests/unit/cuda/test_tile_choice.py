"""Which tiling a product takes: by card and format, and lists are made for every height that a card's experts take."""

import importlib.util

import pytest

if importlib.util.find_spec("numba_cuda") is None:
    pytest.skip("the package numba-cuda is not installed", allow_module_level=True)

from strata.cuda.card.blueprint import Blueprint
from strata.cuda.packed.lifted import FINE_BLOCK
from strata.cuda.packed.products import Coded, Packed, listed_tiled, make_lists, plan
from strata.cuda.packed.tile_choice import (
    CHUNK, CHUNK_IN_PAIRS, EXPERTS, FEW_EXPERTS, LOW, MIDDLE, SNUG, chunk_tile, expert_heights, experts_tile,
)
from strata.errors import DeviceError
from strata.formats.table import FORMATS, by_name

N_EXPERTS, N_ENTRIES = 512, 20480
CARDS = ((7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0))


@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
def test_tiles_other_than_the_usual_are_for_formats_with_the_arithmetic_of_a_measured_one(form):
    is_plain, is_paired = form.block_weights <= FINE_BLOCK and not form.has_offset, form.name in ("Q4_K", "Q5_K")
    assert experts_tile((9, 0), form.type_id) == (LOW if is_plain or is_paired else EXPERTS)
    assert chunk_tile((9, 0), form.type_id) == (CHUNK_IN_PAIRS if is_paired else CHUNK)
    assert experts_tile((10, 0), form.type_id) == chunk_tile((10, 0), form.type_id) == LOW


def test_cards_with_less_room_take_smaller_tiles_in_every_format():
    for card, dense, experts in (((7, 5), SNUG, SNUG), ((8, 0), MIDDLE, FEW_EXPERTS), ((8, 6), MIDDLE, FEW_EXPERTS), ((12, 0), MIDDLE, FEW_EXPERTS)):
        assert {chunk_tile(card, type_id) for type_id in FORMATS} == {dense}
        assert {experts_tile(card, type_id) for type_id in FORMATS} == {experts}


@pytest.mark.parametrize("card", CARDS)
def test_lists_have_a_plan_for_every_height_with_room_for_the_most_tiles(card):
    lists = make_lists(Blueprint(card), "lists", N_EXPERTS, N_ENTRIES)
    assert [own.height for own in lists.plans] == list(expert_heights(card)) == ([48, 64] if card == (9, 0) else [48] if card == (10, 0) else [64])
    for own in lists.plans:
        worst = N_EXPERTS - 1 + -(-(N_ENTRIES - N_EXPERTS + 1) // own.height)
        assert worst <= own.most == own.listed.size == own.first.size


def experts_of(device, name: str, n_out: int, n_in: int) -> Packed:
    form = by_name(name)
    each = n_out * (n_in // form.block_weights) * form.block_bytes
    return Packed(device.empty("weights", 8 * each, "uint8"), form.type_id, n_out, n_in, each)


def launches_of(card: tuple[int, int], names: tuple[str, ...]):
    """The plans, and each product, of experts whose gate, up and down have these formats."""
    device = Blueprint(card)
    lists, sizes = make_lists(device, "lists", N_EXPERTS, N_ENTRIES), ((640, 2560), (640, 2560), (2560, 640))
    matrices = tuple(experts_of(device, name, *size) for name, size in zip(names, sizes, strict=True))
    products = []
    for matrix in matrices:
        x = Coded(*(device.empty("x", N_ENTRIES, kind) for kind in ("int8", "int8", "float32", "int32")), N_ENTRIES, matrix.n_in)
        products.append(listed_tiled(device, matrix, x, lists, device.empty("out", 1, "float32")))
    return lists, plan(device, lists, matrices), products


@pytest.mark.parametrize(("card", "names", "heights"), [
    ((9, 0), ("Q2_0", "Q2_0", "Q2_0"), (48, 48, 48)), ((9, 0), ("Q4_K", "Q4_K", "Q4_0"), (48, 48, 48)), ((9, 0), ("Q6_K", "Q6_K", "Q4_0"), (64, 64, 48)),
    ((9, 0), ("Q3_K", "Q6_K", "Q3_K"), (64, 64, 64)), ((9, 0), ("Q2_0", "Q6_K", "Q8_0"), (48, 64, 48)), ((10, 0), ("Q4_K", "Q6_K", "Q4_0"), (48, 48, 48)),
])
def test_every_product_reads_the_plan_of_its_own_height(card, names, heights):
    lists, plans, products = launches_of(card, names)
    by_height = {own.height: own for own in lists.plans}
    assert [int(launch.arguments[0]) for launch in plans] == list(dict.fromkeys(heights))
    for launch in plans:
        own = by_height[int(launch.arguments[0])]
        assert launch.arguments[3] is own.n_tiles and launch.arguments[4] is own.listed and launch.arguments[5] is own.first
    for launch, height in zip(products, heights, strict=True):
        own = by_height[height]
        assert launch.arguments[6] is own.n_tiles and launch.arguments[7] is own.listed and launch.arguments[8] is own.first
        assert launch.shape.grid[1] == own.most == N_EXPERTS + N_ENTRIES // height


def test_lists_without_a_height_refuse_its_tiles():
    device = Blueprint((9, 0))
    lists = make_lists(device, "lists", 4, 4, (64,))
    with pytest.raises(DeviceError, match="the lists were made for 64"):
        plan(device, lists, (experts_of(device, "Q2_0", 64, 64),))
