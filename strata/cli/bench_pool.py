"""`strata bench pool`: the CPU pool's row kernels, by weight format, beside the bandwidth measured in the same rounds."""

import argparse
from dataclasses import asdict

from strata.cli.json_output import emit_measured
from strata.cli.progress import ProgressLine
from strata.errors import UsageError

SHOWN = ("of_bandwidth", "weights_per_core", "eight_to_one", "bound", "llama_bytes_per_second")
HEADER = f"{'':<9}{'threads':>7}{'GB/s':>8}{'read GB/s':>11}{'ratio':>7}{'Gweights/s/core':>17}{'in cache':>10}{'8 rows / 1':>12}  {'bound':<12}"
LLAMA_HEADER = f"{'llama.cpp GB/s':>15}{'ours/theirs':>13}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this measurement."""
    pool = parser.add_argument_group("bench pool")
    pool.add_argument("--formats", default="", metavar="A,B..", help="weight formats (default: all)")
    pool.add_argument("--llama-cpp", default="", metavar="PATH", help="time llama.cpp's kernels on the same rows: its libggml-cpu.so or the folder of it (default: that of an installed llama-cpp-python, where there is one)")


def execute(options: argparse.Namespace) -> int:
    """Run the command; the speed does not change the exit code."""
    from strata.bench.llama_rows import find_library, open_library
    from strata.bench.pool import N_IN, N_OUT, measure
    from strata.cpu_pool.instruction_sets import instruction_set
    from strata.split.devices import usable_cores

    most = options.threads or usable_cores()
    progress, library = ProgressLine(), find_library(options.llama_cpp)
    llama = None if library is None else open_library(library)
    speeds = measure(_formats(options.formats), sorted({1, most}), options.rounds, progress.show, llama)
    progress.clear()
    if options.json:
        rows = [asdict(speed) | {name: getattr(speed, name) for name in SHOWN} for speed in speeds]
        emit_measured(options.json, {"instructions": instruction_set(), "n_in": N_IN, "n_out": N_OUT, "n_rounds": options.rounds, "llama_cpp": library is not None, "formats": rows})
        return 0
    print(f"experts of {N_OUT} x {N_IN}, instructions {instruction_set()}; median of {options.rounds} rounds")
    print("\n".join([HEADER + (LLAMA_HEADER if llama else ""), *map(_line, speeds)]))
    return 0


def _formats(names: str):
    from strata.formats.contract import WeightFormat
    from strata.formats.table import FORMATS, by_name

    chosen = [by_name(name) for name in names.split(",")] if names else list(FORMATS.values())
    for form in chosen:
        if not isinstance(form, WeightFormat):
            raise UsageError(f"formats={form.name}", "its rows are floats, not blocks", "name block formats")
    return chosen


def _line(speed) -> str:
    return (
        f"{speed.format:<9}{speed.n_threads:>7}{speed.bytes_per_second / 1e9:>8.1f}{speed.bandwidth.median / 1e9:>11.1f}"
        f"{speed.of_bandwidth:>7.2f}{speed.weights_per_core / 1e9:>17.1f}{speed.cached.median / speed.n_threads / 1e9:>10.1f}"
        f"{speed.eight_to_one:>12.2f}  {speed.bound:<12}{_beside(speed)}"
    )


def _beside(speed) -> str:
    """Return llama.cpp's column, where it was measured."""
    theirs = speed.llama_bytes_per_second
    return "" if theirs is None else f"{theirs / 1e9:>15.1f}{speed.bytes_per_second / theirs:>13.2f}"
