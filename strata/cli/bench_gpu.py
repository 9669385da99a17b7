"""`strata bench gpu`: a card on a synthetic model of the real geometry, beside the floors that its memory and arithmetic set.

With --resident it holds a share of the experts; the CPU pool computes the others from RAM.
"""

import argparse
import re

from strata.cli.engine_flags import whole_numbers
from strata.cli.json_output import STDOUT, emit
from strata.cli.progress import ProgressLine
from strata.errors import UsageError

MOST_ROWS, MOST_CHUNK = 8, 8192
LEAST_CONTEXT = 4096


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this measurement."""
    gpu = parser.add_argument_group("bench gpu")
    gpu.add_argument("--device", default="cuda:0", metavar="CARD", help="the card to measure (default: cuda:0)")
    gpu.add_argument("--layers", type=int, default=48, metavar="N", help="layers of the synthetic model, 4 to 48 (default: 48)")
    gpu.add_argument("--experts", default="Q2_0,Q4_K", metavar="A,B..", help="formats of experts, a model each (default: Q2_0,Q4_K)")
    gpu.add_argument("--dense-format", default="Q4_K", metavar="A", help="format of the other large matrices (default: Q4_K)")
    gpu.add_argument("--head-format", default="Q6_K", metavar="A", help="format of the output head (default: Q6_K)")
    gpu.add_argument("--rows", default="1,2,4,8", metavar="N,N..", help="rows of decode windows, 1 to 8, or none (default: 1,2,4,8)")
    gpu.add_argument("--chunks", metavar="N,N..", help="rows of prompt chunks, or none (default: 512,2048; none with --resident)")
    gpu.add_argument("--position", type=int, default=3000, metavar="N", help="cells before each row of a decode window (default: 3000)")
    gpu.add_argument("--chunk-position", type=int, default=0, metavar="N", help="cells before a prompt chunk (default: 0)")
    gpu.add_argument("--profile", nargs="?", const="1", default="none", metavar="N,N..", help="time each launch of windows and chunks of these rows (without a list: 1)")
    gpu.add_argument("--seed", type=int, default=1, metavar="N", help="chooses weights and tokens, 0 to 65535 (default: 1)")


def execute(options: argparse.Namespace) -> int:
    """Run the command; the speed does not change the exit code."""
    index, figures = _card(options.device), _figures(options)
    from strata.cuda.card.found import card_at

    card_at(index)
    from strata.bench.gpu.geometry import REAL, with_layers
    from strata.bench.gpu.run import BenchSettings

    settings = BenchSettings(config=with_layers(REAL, options.layers), index=index, n_times=options.rounds, **figures)
    if options.resident is None:
        from strata.bench.gpu.report import json_of, lines_of
        from strata.bench.gpu.run import measure

        return _measured(options, measure, json_of, lines_of, (settings,))
    from strata.bench.gpu.tier_report import json_of, lines_of
    from strata.bench.gpu.tier_run import TierSettings, measure
    from strata.split.devices import usable_cores

    tiers = TierSettings(options.resident, options.pcie_frac or 0.0, options.threads or usable_cores())
    return _measured(options, measure, json_of, lines_of, (settings, tiers))


def _measured(options: argparse.Namespace, measure, json_of, lines_of, settings: tuple) -> int:
    """Measure, write the JSON file as it grows, and print."""
    from strata.cli.env import recorded

    progress, facts = ProgressLine(), recorded()

    def save(report) -> None:
        if options.json not in (None, STDOUT):
            emit(options.json, {"environment": facts} | json_of(report, *settings))

    if options.json not in (None, STDOUT):
        emit(options.json, {"environment": facts})
    report = measure(*settings, progress.show, save)
    progress.clear()
    if options.json == STDOUT:
        emit(STDOUT, {"environment": facts} | json_of(report, *settings))
    else:
        print("\n".join(lines_of(report, *settings)))
    return 0


def _card(name: str) -> int:
    found = re.fullmatch(r"cuda:(\d+)", name)
    if found is None:
        raise UsageError(f"device={name}", "this measures a card", "use cuda:0")
    return int(found[1])


def _figures(options: argparse.Namespace) -> dict:
    """Return the settings that flags give; raises UsageError naming the flag."""
    asked = options.chunks or ("512,2048" if options.resident is None else "none")
    rows, chunks = _counts("rows", options.rows, 1, MOST_ROWS), _counts("chunks", asked, MOST_ROWS + 1, MOST_CHUNK)
    profiled = _counts("profile", options.profile, 1, MOST_CHUNK)
    if not rows and not chunks:
        raise UsageError("rows=none chunks=none", "nothing would be measured", "name row counts of windows or of chunks")
    _check_tier(options, profiled)
    for n in profiled:
        if n not in (*rows, *chunks):
            raise UsageError(f"profile={n}", "no such window is measured", "name it in --rows or --chunks too")
    if not 0 <= options.seed < 65536:
        raise UsageError(f"seed={options.seed}", "it is not from 0 to 65535", "use one that is")
    ends = [options.position + 1] * bool(rows) + [options.chunk_position + n for n in chunks]
    context = options.context or max(LEAST_CONTEXT, *ends)
    for name, value in (("position", options.position), ("chunk_position", options.chunk_position)):
        if value < 0:
            raise UsageError(f"{name}={value}", "positions start at 0", "use 0 or more")
    if max(ends) > context:
        raise UsageError(f"context={context}", f"the windows need {max(ends)} positions", "use a longer context, or leave it out")
    experts = tuple(_block_format("experts", name) for name in options.experts.split(","))
    return {
        "rows": rows, "chunks": chunks, "profiled": profiled, "position": options.position, "chunk_position": options.chunk_position,
        "context": context, "seed": options.seed, "experts": experts, "dense": _block_format("dense_format", options.dense_format),
        "head": _block_format("head_format", options.head_format),
    }


def _check_tier(options: argparse.Namespace, profiled: tuple[int, ...]) -> None:
    """Refuse what has no meaning with a share of the experts, or without."""
    if options.resident is None:
        return
    if not 0 < options.resident < 1:
        raise UsageError(f"resident={options.resident}", "it is no share of the experts", "use more than 0 and less than 1, or leave it out")
    if not 0 <= (options.pcie_frac or 0) <= 1:
        raise UsageError(f"pcie_frac={options.pcie_frac}", "it is no share of the missed experts", "use 0 to 1")
    if profiled:
        raise UsageError(f"profile={options.profile} resident={options.resident}", "launches are timed with all experts resident", "leave one of them out")


def _counts(name: str, text: str, least: int, most: int) -> tuple[int, ...]:
    if text == "none":
        return ()
    counts = tuple(dict.fromkeys(whole_numbers(name, text)))
    for n in counts:
        if not least <= n <= most:
            raise UsageError(f"{name}={text}", f"{n} is not from {least} to {most}", "use numbers that are")
    return counts


def _block_format(flag: str, name: str) -> str:
    from strata.formats.contract import WeightFormat
    from strata.formats.table import by_name

    form = by_name(name)
    if not isinstance(form, WeightFormat):
        raise UsageError(f"{flag}={name}", "its rows are floats, not blocks", "name a block format")
    return form.name
