"""Compiles every kernel of the catalogue into a folder of ready kernels: `python -m tests.ptx.prebuild FOLDER 9.0`.

Products in all formats, and the operations at the real model's geometry and the fixture's: what tests/gpu asks for, beside
what `strata kernels` finds in a model.  Does not know: models.
"""

import sys
from pathlib import Path

from strata.cuda.card.building import KernelFolder, build
from strata.cuda.machine.seam import target_of
from strata.split.devices import usable_cores
from tests.ptx.catalogue import entries


def main(folder: str, capability_text: str) -> int:
    """Fill the folder and print the figures; returns 1 where a kernel failed."""
    major, minor = capability_text.split(".")
    capability = int(major), int(minor)
    target = KernelFolder(Path(folder), True, capability)
    kernels = [(entry.build(target_of(capability)), entry.signature) for entry in entries()]
    built = build(target, kernels, usable_cores(), lambda done, n: None)
    print(f"{built.n_wanted} kernels needed, {built.n_there} were there, {built.n_compiled} compiled in {built.seconds:.1f} s, {built.n_bytes:,} bytes")
    print("\n".join(built.failures))
    return int(bool(built.failures))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
