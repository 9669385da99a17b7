"""Tiles of chunks on 9.0: rows come by bulk copies, whose operands the compiler finds to be a warp's; other cards have none."""

import re

import pytest

from strata.cuda.card.compiling import compile_ptx, link, why_no_compiler

REASON = why_no_compiler()
pytestmark = [pytest.mark.ptx, pytest.mark.skipif(REASON is not None, reason=str(REASON))]
BULK, BY_PIECES = r"cp\.async\.bulk\.shared::cluster\.global", r"cp\.async\.cg\.shared\.global .*16;"


def copies_of(name: str, capability: tuple[int, int], is_window: bool) -> tuple[int, int]:
    """Compile a format's dense tiles; return how many bulk copies, and copies of pieces of weights, are written in them."""
    from strata.cuda.machine.seam import target_of
    from strata.cuda.packed.tile_choice import WINDOW, chunk_tile
    from strata.cuda.packed.tile_kernels import dense_tiles
    from strata.formats.table import by_name
    from tests.ptx.catalogue import DENSE_TILES, _signature

    kernel = dense_tiles(by_name(name).type_id, WINDOW if is_window else chunk_tile(capability, by_name(name).type_id), target_of(capability))
    ptx = compile_ptx(kernel, _signature(DENSE_TILES), capability)
    assert link(ptx, capability)[0][:4] == b"\x7fELF"
    return len(re.findall(BULK, ptx)), len(re.findall(BY_PIECES, ptx))


@pytest.mark.parametrize("name", ["Q4_K", "Q5_K"])
def test_chunks_take_bulk_copies(name):
    n_bulk, n_pieces = copies_of(name, (9, 0), False)
    assert n_bulk == 32 and n_pieces == 0


@pytest.mark.parametrize(("name", "capability", "is_window"), [
    ("Q4_K", (9, 0), True), ("Q4_K", (12, 0), False), ("Q4_K", (8, 6), False), ("Q2_0", (9, 0), False),
])
def test_windows_other_cards_and_rows_that_begin_anywhere_take_pieces(name, capability, is_window):
    n_bulk, n_pieces = copies_of(name, capability, is_window)
    assert n_bulk == 0 and n_pieces > 0
