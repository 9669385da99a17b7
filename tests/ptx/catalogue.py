"""Every kernel of the product rooms with its signature; other rooms add a function and a line in ROOMS.

An entry is (name, build(target) -> dispatcher, signature, most registers).  Signatures are those that `launch.py` makes of
contiguous arrays and sized integers.  Does not know: how they are compiled.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from strata.formats.table import FORMATS, by_name

LARGE, LATER, LESS = (9, 0), (10, 0), (12, 0)
"""Compute capabilities whose tilings differ, among targets with dependent launches."""
THOROUGH = ("Q4_K", "Q3_K", "Q2_0")
"""Formats that stand for the kinds of unpacking: an offset and aligned words; split scales; turned words with a bias."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One kernel; `representative` ones are compiled for every capability in the default run, others are slow tests."""

    name: str
    build: Callable
    signature: tuple
    most_registers: int
    representative: bool


def _types():
    from numba.cuda import types

    def array(element):
        return types.Array(element, 1, "C")

    return {
        "u8": array(types.uint8), "i8": array(types.int8), "i32": array(types.int32), "f32": array(types.float32),
        "I": types.int32, "L": types.int64,
    }


def _signature(text: str) -> tuple:
    by_name = _types()
    return tuple(by_name[word] for word in text.split())


DENSE_ROWS = "u8 I I I I i8 f32 i32 f32"
JOINED_ROWS = "u8 u8 u8 I I I I I I i8 f32 i32 f32 f32 f32 u8 u8 I I I I f32 f32 f32"
WINDOW_PRODUCTS = "u8 u8 u8 I I I I I I I i8 f32 i32 f32 f32 f32 u8 u8 I I I I f32 f32 f32"
JOINED_TILES = "u8 u8 u8 I I I I I I i8 f32 i32 f32 f32 f32"
EXPERT_ROWS = "u8 L I I I I i32 i32 i32 i32 i8 f32 i32 f32"
DENSE_TILES = "u8 I I I I I i8 f32 i32 f32"
EXPERT_TILES = "u8 L I I I I i32 i32 i32 i32 i32 i32 i8 f32 i32 f32"

GATE_UP = "u8 u8 u8 u8 L I I I I I I i32 i32 i32 i32 i8 i8 f32 i32 i8 i8 f32 i32"
DOWN = "u8 u8 L I I I I I I I i32 i32 i32 i8 i8 f32 i32 f32"
GROUPS = 80
"""Of a row of 2,560 columns."""
ROUTER = "u8 u8 f32 f32 f32 i32 i32 f32 i32 i32 i32 i32 i32 I"


def quantised_products() -> Iterator[Entry]:
    from strata.cuda.packed.rows import DEEP_STAGES, STAGES, dense_rows, expert_rows, known_of
    from strata.cuda.packed.tile_choice import WINDOW, chunk_tile, experts_tile
    from strata.cuda.packed.tile_kernels import dense_tiles, expert_tiles

    for type_id, form in FORMATS.items():
        chosen = form.name in THOROUGH
        for n_rows, most in ((1, 73), (2, 85), (3, 102), (4, 128), (5, 128), (8, 128)):
            yield Entry(
                f"dense_rows {form.name} {n_rows}", lambda t, i=type_id, r=n_rows: dense_rows(i, r, STAGES, known_of(r, GROUPS), t),
                _signature(DENSE_ROWS), most, n_rows == 1 or chosen and n_rows in (4, 8),
            )
            yield Entry(
                f"deep dense_rows {form.name} {n_rows}", lambda t, i=type_id, r=n_rows: dense_rows(i, r, DEEP_STAGES, known_of(r, GROUPS), t),
                _signature(DENSE_ROWS), 168, chosen and n_rows in (1, 8),
            )
        yield Entry(f"expert_rows {form.name}", lambda t, i=type_id: expert_rows(i, t), _signature(EXPERT_ROWS), 73, chosen)
        yield Entry(f"dense_tiles {form.name} window", lambda t, i=type_id: dense_tiles(i, WINDOW, t), _signature(DENSE_TILES), 80, chosen)
        for name, card in (("", LARGE), (" with less room", LESS)):
            yield Entry(
                f"dense_tiles {form.name} chunk{name}", lambda t, i=type_id, c=card: dense_tiles(i, chunk_tile(_card(t, c), i), t),
                _signature(DENSE_TILES), 255, chosen,
            )
        for name, card in (("", LARGE), (" of later cards", LATER), (" with less room", LESS)):
            if card != LATER or experts_tile(LATER, type_id) != experts_tile(LARGE, type_id):
                yield Entry(
                    f"expert_tiles {form.name}{name}", lambda t, i=type_id, c=card: expert_tiles(i, experts_tile(_card(t, c), i), t),
                    _signature(EXPERT_TILES), 128 if card == LESS else 255, chosen,
                )


def _card(target, card: tuple[int, int]) -> tuple[int, int]:
    """Return the compute capability whose tilings are compiled for a target: `card`, or the one that lacks as much as the target.

    What is compiled for 12.0 stands for 10.0 as well: the compiler is the same.
    """
    if not target.dependent_launch:
        return (8, 6) if target.async_copies else (7, 5)
    return LATER if card == LARGE and not target.bulk_copies else card


def expert_products() -> Iterator[Entry]:
    from strata.cuda.experts.expert_products import DOWN_TURNS, SHORT_TURNS, down_kernel, gate_up_kernel
    from strata.cuda.experts.pairs import PASS_ROWS
    from strata.cuda.experts.router import router_kernel
    from strata.cuda.experts.short_downs import takes
    from strata.cuda.packed.rows import known_of

    pairs = [(form, form, form.name in THOROUGH) for form in FORMATS.values()]
    pairs += [(by_name(own), by_name(common), True) for own, common in (("Q2_0", "Q4_K"), ("Q2_0", "Q4_0"))]
    for own, common, chosen in pairs:
        name, ids = own.name if own is common else f"{own.name} and {common.name}", (own.type_id, common.type_id)
        for n_pass in (1, PASS_ROWS):
            most = 128 if n_pass == 1 else 80
            yield Entry(f"gate_up {name} {n_pass}", lambda t, i=ids, n=n_pass: gate_up_kernel(*i, n, known_of(n, GROUPS), t), _signature(GATE_UP), most, chosen)
            for ahead in (True, False):
                yield Entry(
                    f"down {name} {n_pass}{' ahead' if ahead else ''}",
                    lambda t, i=ids, n=n_pass, a=ahead: down_kernel(*i, n, DOWN_TURNS, a, known_of(n, 20), t), _signature(DOWN), most, chosen and ahead,
                )
    for own, common, _ in pairs:
        n_groups, ids = 16 if 256 in (own.block_weights, common.block_weights) else 20, (own.type_id, common.type_id)
        if all(takes(form, n_groups, 2560) for form in (own, common)):
            yield Entry(
                f"down {own.name} and {common.name} by whole rows",
                lambda t, i=ids, n=n_groups: down_kernel(*i, PASS_ROWS, SHORT_TURNS, True, n, t), _signature(DOWN), 80, own.name in ("Q4_0", "Q2_0", "Q3_K"),
            )
    kinds = [("BF16", 1, "staged"), ("BF16", 8, "staged"), ("BF16", 8, "plain"), ("F16", 2, "staged")]
    kinds += [("BF16", 8, "by rows"), ("F32", 8, "by rows"), ("F16", 3, "by rows")]
    for name, n_rows, way in kinds:
        yield Entry(
            f"router {name} {n_rows} {way}", lambda t, n=name, r=n_rows, w=way: router_kernel(n, 2560, 512, 10, r, w, t), _signature(ROUTER),
            160 if way == "by rows" else 128, name == "BF16",
        )


def joined_products() -> Iterator[Entry]:
    from strata.cuda.packed.joined_rows import float_cut, joined_rows
    from strata.cuda.packed.rows import known_of
    from strata.cuda.packed.tile_choice import WINDOW
    from strata.cuda.packed.tile_kernels import joined_tiles

    for type_id, form in FORMATS.items():
        for n_rows, most in ((1, 73), (2, 85), (3, 102), (4, 128), (5, 128), (8, 128)):
            for floats in ("", "BF16", "F32"):
                staged = bool(floats) and float_cut(floats, 2560, n_rows)[0]
                yield Entry(
                    f"joined_rows {form.name} {n_rows} {floats or 'alone'}",
                    lambda t, i=type_id, r=n_rows, f=floats, s=staged: joined_rows(i, r, f, s, known_of(r, GROUPS), t),
                    _signature(JOINED_ROWS), most, form.name in THOROUGH and n_rows in (1, 4, 8) and floats == "BF16",
                )
        yield Entry(
            f"joined_tiles {form.name}", lambda t, i=type_id: joined_tiles(i, WINDOW, t), _signature(JOINED_TILES), 80, form.name in THOROUGH
        )


def window_products() -> Iterator[Entry]:
    from strata.cuda.packed import window_kernels
    from strata.cuda.packed.window_cuts import cut_of

    for type_id, form in FORMATS.items():
        seen = set()
        for n_groups, n_out in ((80, 16384), (192, 2560), (24, 83), (22, 83)):
            cut = cut_of(type_id, n_groups, (n_out,), 227 << 10)
            beside = (("BF16", 5, True), ("BF16", 8, True), ("BF16", 8, False)) if (n_groups, n_out) == (80, 16384) else ()
            for floats, n_rows, wide in (("", 0, False), *beside):
                kind = cut.units, cut.stages, cut.held, floats, n_rows, wide
                if kind not in seen:
                    seen.add(kind)
                    yield Entry(
                        f"window_products {form.name} {cut.units} {cut.stages} {floats or 'alone'} {n_rows}{' wide' if wide else ''}",
                        lambda t, i=type_id, k=kind: window_kernels.window_products(i, *k, t), _signature(WINDOW_PRODUCTS), 128 if cut.held == 2 else 80,
                        form.name in THOROUGH and n_groups > 24,
                    )


def float_products() -> Iterator[Entry]:
    from strata.cuda.floats.float_lanes import FEW_OUTPUTS, SQUARE, float_lanes
    from strata.cuda.floats.float_one_row import float_one_row
    from strata.cuda.floats.float_rows import float_rows
    from strata.cuda.floats.float_short_rows import short_rows
    from strata.cuda.floats.float_short_tiles import short_tiles
    from strata.cuda.floats.float_tiles import float_tiles
    from strata.cuda.floats.float_wide_rows import wide_rows

    for name in ("BF16", "F16", "F32"):
        for n_rows, n_outputs, staged in ((1, 1, True), (2, 3, True), (8, 1, False), (8, 4, False)):
            yield Entry(
                f"float_rows {name} {n_rows} {n_outputs}", lambda t, n=name, r=n_rows, o=n_outputs, s=staged: float_rows(n, r, o, s, t),
                _signature("u8 u8 I I I I f32 f32 f32"), 128, name == "BF16",
            )
        for n_in in (10240, 1028):
            yield Entry(
                f"float_one_row {name} {n_in}", lambda t, n=name, i=n_in: float_one_row(n, i, t), _signature("u8 u8 I I f32 f32 f32"), 128,
                name == "BF16" and n_in == 10240,
            )
        for n_rows in (1, 2):
            yield Entry(
                f"short_rows {name} {n_rows}", lambda t, n=name, r=n_rows: short_rows(n, r, t), _signature("u8 I I I I f32 f32"),
                128, name == "BF16",
            )
        for n_rows, sides in ((3, 1), (8, 1), (5, 2), (8, 2)):
            yield Entry(
                f"wide_rows {name} {n_rows} {sides}", lambda t, n=name, r=n_rows, s=sides: wide_rows(n, r, s, t), _signature("u8 u8 I I I f32 f32 f32"),
                160, name == "BF16",
            )
        chunk = _signature("u8 I I I f32 f32")
        yield Entry(f"float_lanes {name}", lambda t, n=name: float_lanes(n, SQUARE, t), chunk, 128, True)
        yield Entry(f"float_lanes {name} few", lambda t, n=name: float_lanes(n, FEW_OUTPUTS, t), chunk, 96, name == "BF16")
        yield Entry(f"float_tiles {name}", lambda t, n=name: float_tiles(n, t), chunk, 255, name == "BF16")
        for n_in in (320, 324):
            yield Entry(f"short_tiles {name} {n_in}", lambda t, n=name, i=n_in: short_tiles(n, i, t), chunk, 255, name == "BF16" and n_in == 320)


def small_kernels() -> Iterator[Entry]:
    from strata.cuda.packed.coding import encode, encode_spans
    from strata.cuda.packed.lists import plan_tiles

    yield Entry("encode", encode, _signature("f32 I i8 i8 f32 i32"), 64, True)
    yield Entry("encode_spans", encode_spans, _signature("f32 I I i32 i8 i8 f32 i32"), 64, True)
    yield Entry("plan_tiles", plan_tiles, _signature("I i32 i32 i32 i32 i32"), 64, True)


def operations() -> Iterator[Entry]:
    from tests.ptx.operations import entries

    yield from entries()


def bench_kernels() -> Iterator[Entry]:
    from tests.ptx.bench_kernels import entries

    yield from entries()


ROOMS = (quantised_products, joined_products, window_products, expert_products, float_products, small_kernels, operations, bench_kernels)


def entries() -> list[Entry]:
    """Return every kernel of every room."""
    return [entry for room in ROOMS for entry in room()]
