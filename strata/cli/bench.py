"""`strata bench`: `host` is how fast one conversation is on this machine's CPU, beside the floor that memory sets; `drafts`
is what drafts are worth (`strata.cli.bench_drafts`); `pool` is the CPU pool's row kernels (`strata.cli.bench_pool`); `gpu` is
a card on a synthetic model of the real geometry (`strata.cli.bench_gpu`); `tier` is what the expert tier's rounds are worth
(`strata.cli.bench_tier`)."""

import argparse
from dataclasses import asdict

from strata.cli import bench_drafts, bench_gpu, bench_pool, bench_tier
from strata.cli.engine_flags import add_engine_flags, settings_of
from strata.cli.json_output import STDOUT, emit_measured
from strata.cli.progress import ProgressLine
from strata.errors import UsageError

SUMMARY = (
    "Measure speed: `host` is solo decoding and prompt reading on the CPU, with the floor of memory beside it; "
    "`drafts` is decoding with drafts against without, by kind of prompt; `pool` is the CPU pool's row kernels, by weight "
    "format, beside the bandwidth of memory; `gpu` is a card on a synthetic model of the real geometry, beside its floors; `tier` "
    "is the expert tier with rounds of swaps, with a frozen profile, and without."
)
USAGE = "host|drafts|pool|gpu|tier [options]"
TARGETS = {"decode": 150, "read": 700}
"""Tokens per second that two cores with AVX2 should reach on the shipped model."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=tuple(MEASUREMENTS), help="what to measure")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="rounds after one to warm up (default: 5)")
    parser.add_argument("--json", nargs="?", const=STDOUT, metavar="FILE", help="print one JSON object, or write it to a file")
    bench_drafts.add_arguments(parser)
    bench_pool.add_arguments(parser)
    bench_gpu.add_arguments(parser)
    bench_tier.add_arguments(parser)
    add_engine_flags(parser)


def execute(options: argparse.Namespace) -> int:
    """Run the command; the speed does not change the exit code."""
    if options.rounds < 1:
        raise UsageError(f"rounds={options.rounds}", "nothing would be measured", "use 1 or more")
    return MEASUREMENTS[options.what](options)


def _execute_host(options: argparse.Namespace) -> int:
    from strata.batch.engine import Engine
    from strata.bench.host_speed import measure
    from strata.model.model import load_model
    from strata.model.tokenizer import read_tokenizer

    settings = settings_of(options)
    model = load_model(options.model)
    progress = ProgressLine()
    with Engine(model, settings) as engine:
        speed = measure(engine, read_tokenizer(model.files.keys), options.rounds, progress.show)
        progress.clear()
        described = {"model": model.files.paths[0].name, **engine.resolved.described()}
    if options.json:
        emit_measured(options.json, {"settings": described, **asdict(speed)})
    else:
        print("\n".join(_lines(described, speed)))
    return 0


def _lines(described: dict[str, str], speed) -> list[str]:
    shown = ", ".join(f"{name} {described[name]}" for name in ("model", "rounding", "kv", "threads", "stages"))
    floor_ms = speed.floor_ms
    decode_ms = 1e3 / speed.decode.median
    return [
        f"{shown}; median of {speed.n_rounds} rounds (least - most)",
        _rate("decoding, one conversation", speed.decode, TARGETS["decode"]),
        _rate(f"reading a prompt of {speed.n_prompt}", speed.read, TARGETS["read"]),
        f"{'reading memory, same threads':<32}{speed.bandwidth.median / 1e9:>8.1f} GB/s ({speed.buffer_bytes >> 20} MiB)",
        f"{'floor of decoding':<32}{floor_ms:>8.2f} ms a token: {speed.token_bytes / 1e6:.1f} MB of weights over that bandwidth",
        f"{'decoding takes':<32}{decode_ms:>8.2f} ms a token, {decode_ms / floor_ms:.1f} times the floor",
    ]


def _rate(what: str, spread, target: int) -> str:
    return f"{what:<32}{spread.median:>8.1f} tokens/s ({spread.least:.1f} - {spread.most:.1f}), target on 2 cores {target}"


MEASUREMENTS = {
    "host": _execute_host, "drafts": bench_drafts.execute, "pool": bench_pool.execute, "gpu": bench_gpu.execute, "tier": bench_tier.execute,
}
"""What is measured, by name."""
