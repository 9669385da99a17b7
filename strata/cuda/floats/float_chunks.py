"""Float products of prompt chunks: which kernel serves which shape.

All of them compute the order of the contract, so the choice changes no bit.  Does not know: windows (products.py).
"""

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Shape
from strata.cuda.floats import float_lanes, float_short_tiles, float_tiles

LEAST_TILES = 50
"""Tiles of 32 rows x 32 outputs from which tiles are quicker than lanes: many multiprocessors should have one."""
KINDS = ("lanes", "few outputs", "tiles", "short tiles")


def kind_of(capability: tuple[int, int], n_in: int, n_out: int, n_rows: int) -> str:
    """Return one of KINDS for a product."""
    if n_out <= float_lanes.FEW_OUTPUTS.outputs:
        return "few outputs"
    n_tiles = -(-n_out // float_tiles.OUTPUTS) * -(-n_rows // float_tiles.ROWS)
    if not float_tiles.fits(capability) or n_tiles < LEAST_TILES:
        return "lanes"
    return "short tiles" if float_short_tiles.LEAST_COLUMNS <= n_in <= float_short_tiles.MOST_COLUMNS else "tiles"


def kernel_and_shape(device: CudaDevice, kind: str, type_name: str, n_in: int, n_out: int, n_rows: int) -> tuple:
    """Return kernel and launch shape of a kind; the kernel takes (weights, n_in, n_out, n_rows, x, out)."""
    if kind in ("lanes", "few outputs"):
        tile = float_lanes.SQUARE if kind == "lanes" else float_lanes.FEW_OUTPUTS
        grid = (-(-n_out // tile.n_outputs), -(-n_rows // tile.rows))
        return float_lanes.float_lanes(type_name, tile, device.target), Shape(grid, tile.n_threads, tile.shared_bytes)
    n_tiles, n_row_tiles = -(-n_out // float_tiles.OUTPUTS), -(-n_rows // float_tiles.ROWS)
    if kind == "tiles":
        shape = Shape((n_tiles, n_row_tiles), float_tiles.THREADS, float_tiles.SHARED_BYTES)
        return float_tiles.float_tiles(type_name, device.target), shape
    shape = Shape((n_tiles, float_short_tiles.splits_of(n_out, n_rows)), float_tiles.THREADS, float_short_tiles.shared_bytes(n_in))
    return float_short_tiles.short_tiles(type_name, n_in, device.target), shape
