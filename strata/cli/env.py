"""`strata env`: versions, processor, threads, caches; what a report of a difference or of a speed needs beside it."""

import argparse
import json
import platform
from pathlib import Path

from strata.cli.versions import versions

SUMMARY = "Print versions, the processor and what of it matters here, and the folder of compiled kernels."
USAGE = "[options]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(options: argparse.Namespace) -> int:
    """Run the command; returns its exit code."""
    facts = environment()
    if options.json:
        print(json.dumps(facts, indent=1))
    else:
        print("\n".join(f"{name:<16}{value}" for name, value in facts.items()))
    return 0


FOLDERS = ("kernel cache", "cuda kernels")
"""What names folders of this machine: no part of a record."""


def environment() -> dict[str, str]:
    """Return name -> value, all text; imports numba."""
    return {**versions(), "system": platform.platform(), **_processor(), **_kernels()}


def recorded() -> dict[str, str]:
    """Return the environment for a file that others read: without folders of this machine."""
    return {name: value for name, value in environment().items() if name not in FOLDERS}


def _processor() -> dict[str, str]:
    from llvmlite import binding

    from strata.split.devices import usable_cores

    present = binding.get_host_cpu_features()
    wanted = ("fma", "avx2", "avx512f", "avx512vnni", "neon")
    return {
        "processor": binding.get_host_cpu_name(),
        "features": " ".join(name for name in wanted if present.get(name)) or "none that matter",
        "usable cores": str(usable_cores()),
    }


def _kernels() -> dict[str, str]:
    from strata.numerics.kernel_cache import cache_folder

    from strata.cuda.card.kernel_files import kept_folder, ready_folder

    ready = ready_folder()
    cubins = _counted(kept_folder(), "*.cubin") + (f", {_counted(ready, '*.cubin')} ready" if ready else "")
    return {"kernel cache": _counted(cache_folder(), "*.kernel"), "cuda kernels": cubins, "numba.cuda": _cuda_target()}


def _counted(folder: Path, pattern: str) -> str:
    return f"{folder} ({len(list(folder.glob(pattern)))} kernels)"


def _cuda_target() -> str:
    """Say which package serves `numba.cuda`, and whether a device answers."""
    try:
        from numba import cuda
    except ImportError as error:
        return f"not importable: {error}"
    implementation = getattr(cuda, "implementation", "built in")
    try:
        n_devices = len(cuda.gpus) if cuda.is_available() else 0
    except Exception as error:  # a broken driver must not hide the rest of the report
        return f"{implementation}, the driver fails: {type(error).__name__}: {error}"
    return f"{implementation}, {n_devices} devices"
