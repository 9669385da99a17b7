"""Compiles every kernel of the catalogue, and of other tilings, into a folder of ready kernels: `python -m tests.ptx.prebuild FOLDER 9.0`.

Products in all formats, and the operations at the real model's geometry and the fixture's: what tests/gpu asks for, beside
what `strata kernels` finds in a model.  Does not know: models.
"""

import sys
from pathlib import Path

from strata.cuda.card.building import KernelFolder, build
from strata.cuda.machine.seam import target_of
from strata.formats.table import FORMATS
from strata.split.devices import usable_cores
from tests.gpu.tilings import tilings
from tests.ptx.catalogue import DENSE_TILES, _signature, entries


def kernels_of(capability: tuple[int, int]) -> list[tuple]:
    """Return (dispatcher, argument types) of every kernel."""
    from strata.cuda.packed.tile_kernels import dense_tiles

    target = target_of(capability)
    kernels = [(entry.build(target), entry.signature) for entry in entries()]
    return kernels + [(dense_tiles(type_id, tile, target), _signature(DENSE_TILES)) for type_id in FORMATS for tile in tilings()]


def main(folder: str, capability_text: str) -> int:
    """Fill the folder and print the figures; returns 1 where a kernel failed."""
    major, minor = capability_text.split(".")
    capability = int(major), int(minor)
    built = build(KernelFolder(Path(folder), True, capability), kernels_of(capability), usable_cores(), lambda done, n: None)
    print(f"{built.n_wanted} kernels needed, {built.n_there} were there, {built.n_compiled} compiled in {built.seconds:.1f} s, {built.n_bytes:,} bytes")
    print("\n".join(built.failures))
    return int(bool(built.failures))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
