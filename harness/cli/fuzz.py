"""`strata-harness fuzz`: random plans until one differs, then the smallest that does."""

import argparse

from harness.cli.outputs import check_outputs

DEFAULT_SECONDS = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fuzz`."""
    parser.add_argument("--seconds", metavar="S", default=str(DEFAULT_SECONDS), help=f"run plans for so long (default: {DEFAULT_SECONDS})")
    parser.add_argument("--count", metavar="N", help="run N plans, however long they take")
    parser.add_argument("--seed", metavar="N", default="1", help="chooses the plans (default: 1)")
    parser.add_argument("--plan", metavar="TEXT", help="run this one plan: what an earlier run printed")
    parser.add_argument("--no-shrink", action="store_true", help="do not look for a smaller plan")
    parser.add_argument("--model", metavar="PATH", help="a .gguf file or a folder of them (default: the shipped model)")
    parser.add_argument("--prompts", metavar="FILE", help="JSON list of prompts (default: prompts.json beside the model)")
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON to a file, or to stdout (-) instead of the report")


def execute(arguments: argparse.Namespace) -> int:
    """Fuzz; returns 0 when every plan was exact, 1 when one differs, 2 when one could not run."""
    from harness.cli.options import number
    from harness.fuzz.hunting import FAILING, hunt, run_plan, shrink
    from harness.fuzz.plan import parse_plan
    from harness.options import Options
    from harness.report.fuzz_report import fuzz_document, print_found, print_summary
    from harness.report.json_report import write_json
    from harness.running import Runner
    from harness.scope import open_scope
    from harness.verdicts import EXIT_CODES
    from strata.errors import UsageError

    seconds, count, seed = (number(name, getattr(arguments, name)) for name in ("seconds", "count", "seed"))
    if count == 0:
        raise UsageError("count=0", "no plan would run", "use 1 or more")
    check_outputs(arguments)
    model, scope = open_scope(Options(model=arguments.model, prompts=arguments.prompts))
    runner = Runner(model)
    quiet = arguments.json == "-"
    if arguments.plan:
        plan = parse_plan(arguments.plan)
        runs, found = [(plan, run_plan(plan, runner, scope.prompts))], plan
        covered, smallest = 0.0, plan if runs[0][1].verdict in FAILING else None
    else:
        runs, covered, smallest = [], 0.0, None
        for hunted in hunt(runner, scope.prompts, seed, seconds, count):
            runs.append((hunted.plan, hunted.result))
            covered = hunted.covered
            if hunted.result.verdict in FAILING:
                found = smallest = hunted.plan
                break
        if smallest is not None and not arguments.no_shrink:
            smallest = shrink(found, runner, scope.prompts, seed)
    result = None
    if smallest is not None:
        result = run_plan(smallest, runner, scope.prompts)
        result = result if result.verdict in FAILING else runs[-1][1]
    if not quiet:
        if result is not None:
            print_found(smallest, result)
        print_summary(runs, covered, seed)
    if arguments.json:
        write_json(arguments.json, fuzz_document(runs, covered, seed, smallest, result))
    return EXIT_CODES[result.verdict] if result is not None else 0
