"""`strata bench drafts`: decoding with drafts against without, paired in one run, by kind of prompt; batches with proposals.
With `--costs`: what windows by their rows and the draft layer's steps cost on the devices given."""

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

from strata.cli.engine_flags import settings_of
from strata.cli.json_output import emit_measured
from strata.cli.progress import ProgressLine
from strata.errors import UsageError

COST_POSITIONS = 240
"""Positions behind which costs are measured, where a prompt is that long."""
GOALS = {("--mtp", "all"): 1.0, ("--mtp --spec 8", "all"): 1.0, ("--mtp --spec 8", "edit"): 1.5, ("--mtp --suffix-draft 3", "edit"): 2.0}
LEAST = 0.95
"""Drafts should be at least as fast over all, and no kind of prompt slower than this."""
BATCHES = (2, 4)
N_CHAINED = 3
"""Drafts behind each token whose share of right ones is told."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this measurement."""
    drafts = parser.add_argument_group("bench drafts")
    drafts.add_argument("--prompts", type=Path, metavar="FILE", help="JSON list of {kind, ids} (default: prompts.json beside the model)")
    drafts.add_argument("--per-kind", type=int, default=2, metavar="N", help="prompts of each kind (default: 2)")
    drafts.add_argument("--costs", action="store_true", help="only measure windows and steps, in windows of one row")
    drafts.add_argument("--tokens", type=int, default=64, metavar="N", help="tokens decoded of each (default: 64)")


def execute(options: argparse.Namespace) -> int:
    """Run the command; the speed does not change the exit code."""
    from strata.bench import draft_acceptance
    from strata.bench.draft_speed import batch_arms, measure, solo_arms
    from strata.model.model import load_model

    if options.tokens < 2 or options.per_kind < 1:
        raise UsageError(f"tokens={options.tokens} per_kind={options.per_kind}", "nothing would be measured", "use 2 tokens, 1 prompt or more")
    settings, progress = settings_of(options), ProgressLine()
    prompts = bench_prompts(options)
    if options.costs:
        return _execute_costs(options, settings, prompts, progress)
    model = load_model(options.model)
    sizes = (options.tokens, options.rounds)
    tables = {"one request": measure(model, solo_arms(settings), prompts, *sizes, 1, progress.show)}
    for slots in BATCHES:
        if len(prompts) >= slots:
            tables[f"{slots} slots"] = measure(model, batch_arms(settings, slots), _mixed(prompts), *sizes, slots, progress.show)
    accepted = draft_acceptance.measure(model, settings, prompts, options.tokens, N_CHAINED, progress.show)
    progress.clear()
    if options.json:
        speed = {name: [asdict(gain) for gain in gains] for name, gains in tables.items()}
        emit_measured(options.json, {"speed": speed, "acceptance": [asdict(one) | {"shares": one.shares} for one in accepted]})
    else:
        print("\n".join([*_lines(tables, len(prompts), options), *_acceptance_lines(accepted)]))
    return 0


def _execute_costs(options: argparse.Namespace, settings, prompts, progress: ProgressLine) -> int:
    from strata.batch.engine import Engine
    from strata.bench.draft_costs import measure
    from strata.model.model import load_model

    tokens = max((prompt.ids for prompt in prompts), key=len, default=())[:COST_POSITIONS]
    if not tokens:
        raise UsageError("prompts", "there is none with a token", "name a file with --prompts")
    alone = replace(settings, mtp=True, batch_mtp=False, batch=1, batch_groups=1)
    with Engine(load_model(options.model), alone) as engine:
        costs = measure(engine, tokens, options.rounds, progress.show)
        in_force = engine.draft_layer.costs
        described = engine.resolved.described()
    progress.clear()
    if options.json:
        print(json.dumps({"settings": described, **asdict(costs), "row": costs.row, "draft": costs.draft, "in_force": asdict(in_force)}, indent=1))
    else:
        print("\n".join(_cost_lines(described, costs, in_force)))
    return 0


def _cost_lines(described: dict[str, str], costs, in_force) -> list[str]:
    one = costs.one_row_ms
    shown = ", ".join(f"{name} {described[name]}" for name in ("rounding", "kv", "threads", "stages"))
    return [
        f"{shown}; {costs.n_positions} positions; medians (least - most) of rounds, in windows of one row",
        f"{'window of 1 row':<28}{one.median:>7.3f} ms ({one.least:.3f} - {one.most:.3f})",
        *(f"{name:<28}{spread.median:>7.3f} ({spread.least:.3f} - {spread.most:.3f})" for name, spread in costs.in_windows.items()),
        f"{'a further row':<28}{costs.row:>7.3f}, the policy reckons with {in_force.row}",
        f"{'a step':<28}{costs.draft:>7.3f}, the policy reckons with {in_force.draft}",
    ]


def bench_prompts(options: argparse.Namespace):
    """Return the prompts of a file, the first of each kind; raises UsageError for one that cannot be read."""
    from strata.bench.draft_speed import BenchPrompt

    folder = options.model if options.model.is_dir() else options.model.parent
    path = options.prompts or folder / "prompts.json"
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        found = [BenchPrompt(entry["kind"], tuple(entry["ids"])) for entry in entries]
    except OSError as error:
        raise UsageError(f"prompts={path}", error.strerror or "it cannot be read", "name a file with --prompts") from error
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"prompts={path}", "it is not a JSON list of {kind, ids}", "correct the file") from error
    kinds = dict.fromkeys(prompt.kind for prompt in found)
    return [prompt for kind in kinds for prompt in [p for p in found if p.kind == kind][: options.per_kind]]


def _mixed(prompts):
    """Return the prompts with the kinds in turn, so that slots hold different ones."""
    kinds = dict.fromkeys(prompt.kind for prompt in prompts)
    by_kind = [[p for p in prompts if p.kind == kind] for kind in kinds]
    return [members[i] for i in range(max(map(len, by_kind))) for members in by_kind if i < len(members)]


def _lines(tables, n_prompts: int, options: argparse.Namespace) -> list[str]:
    lines = [f"{n_prompts} prompts x {options.tokens} tokens, {options.rounds} rounds; times as fast as without drafts: median (least - most)"]
    for name, gains in tables.items():
        lines += ["", f"{name:<28}{'prompts':<8}{'ratio':>7}{'':<18}{'ms/token':>9}{'tokens/window':>15}{'accepted':>12}"]
        lines += [_line(gain) for gain in gains]
    return lines


def _acceptance_lines(accepted) -> list[str]:
    drafts = "".join(f"{f'draft {d}':>10}" for d in range(1, N_CHAINED + 1))
    lines = ["", f"{'right at every position where those before were':<50}{'positions':>10}{drafts}"]
    for one in accepted:
        lines.append(f"{one.kind:<50}{one.reached[0]:>10}" + "".join(f"{share:>10.1%}" for share in one.shares))
    return lines


def _line(gain) -> str:
    spread = f"({gain.ratio.least:.2f} - {gain.ratio.most:.2f})"
    accepted = f"{gain.counters['drafts_accepted']}/{gain.counters['drafts_offered']}"
    goal = GOALS.get((gain.arm, gain.kind), LEAST if gain.arm.startswith("--mtp") else None)
    told = "" if goal is None else f"  goal {goal:.2f}"
    figures = f"{gain.ratio.median:>7.2f} {spread:<17}{gain.ms_per_token.median:>9.2f}{gain.tokens_per_window:>15.2f}{accepted:>12}"
    return f"{gain.arm:<28}{gain.kind:<8}{figures}{told}"
