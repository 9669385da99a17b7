"""`strata bench tier`: adaptive rounds in steps and blocking, a frozen learned profile, none; paired in one run."""

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path

from strata.cli.bench_drafts import bench_prompts
from strata.cli.engine_flags import settings_of
from strata.cli.json_output import emit_measured
from strata.cli.progress import ProgressLine
from strata.errors import UsageError

DEFAULT_RESIDENT = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this measurement; it takes its prompts as `bench drafts` does."""
    tier = parser.add_argument_group("bench tier, bench gpu")
    tier.add_argument("--resident", type=float, metavar="F", help="share of the experts that a device holds (default: 0.2 where --expert-cache says nothing; gpu: all)")


def execute(options: argparse.Namespace) -> int:
    """Run the command; the figures do not change the exit code."""
    from strata.bench.tier_speed import learn, measure, tier_arms
    from strata.model.model import load_model

    resident = DEFAULT_RESIDENT if options.resident is None else options.resident
    if not 0 < resident <= 1:
        raise UsageError(f"resident={resident}", "it is no share of the experts", "use more than 0, at most 1")
    if options.tokens < 2 or options.per_kind < 1:
        raise UsageError(f"tokens={options.tokens} per_kind={options.per_kind}", "nothing would be measured", "use 2 tokens, 1 prompt or more")
    settings, progress = settings_of(options), ProgressLine()
    prompts = [prompt.ids for prompt in bench_prompts(options)]
    model = load_model(options.model)
    n_pairs = model.config.n_layers * model.config.n_experts
    n_slots = max(1, int(n_pairs * resident)) if settings.expert_cache is None else settings.expert_cache
    with tempfile.TemporaryDirectory() as folder:
        learned = str(Path(folder) / "learned.json")
        progress.show("learning the profile of these prompts")
        learn(model, settings, prompts, options.tokens, learned)
        figures = measure(model, tier_arms(settings, n_slots, learned), prompts, options.tokens, options.rounds, progress.show)
    progress.clear()
    if options.json:
        emit_measured(options.json, {"slots": n_slots, "experts": n_pairs, "arms": [asdict(item) for item in figures]})
    else:
        print("\n".join(_lines(figures, n_slots, n_pairs, len(prompts), options)))
    return 0


def _lines(figures, n_slots: int, n_pairs: int, n_prompts: int, options: argparse.Namespace) -> list[str]:
    held = "auto" if n_slots == 0 else f"{n_slots} of {n_pairs} experts"
    lines = [
        f"{n_prompts} prompts x {options.tokens} tokens one after the other, {held} resident; median of {options.rounds} rounds (least - most)",
        f"{'':<26}{'tokens/s':>10}{'ms/window':>11}{'adapt wait ms':>15}  {'served by VRAM':<26}{'PCIe':>8}{'CPU':>8}{'swaps/window':>14}",
    ]
    return lines + [_line(item) for item in figures] + [f"{item.arm}: {item.note}" for item in figures if item.note]


def _line(item) -> str:
    vram = f"{100 * item.vram.median:.1f} % ({100 * item.vram.least:.1f} - {100 * item.vram.most:.1f})"
    speed = f"{item.tokens_per_second.median:>10.1f}{item.window_ms.median:>11.2f}{item.adapt_wait_ms.median:>15.3f}"
    return f"{item.arm:<26}{speed}  {vram:<26}{100 * item.pcie:>6.1f} %{100 * item.cpu:>6.1f} %{item.swaps_per_window:>14.2f}"
