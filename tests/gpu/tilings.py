"""The tilings of quantised products that tests/gpu compares in every format: those in force, and others of many shapes.

Does not know: formats.
"""


def tilings() -> tuple:
    """Return the tilings."""
    from strata.cuda.packed.tile_choice import CHUNK, EXPERTS, LOW, SNUG, WINDOW
    from strata.cuda.packed.tiles import Tile

    few, broad = (Tile(2, 4, 2, 1, 3, 1), Tile(1, 1, 2, 0, 3, 1)), (Tile(2, 8, 1, 2, 2, 1, 4), Tile(2, 16, 1, 1, 3, 1, 2), Tile(4, 8, 1, 1, 3, 1, 2))
    return WINDOW, CHUNK, EXPERTS, LOW, SNUG, *few, *broad
