"""`strata-harness run`: judge suites, and report."""

import argparse

from harness.cli.options import add_options, names, read_options
from harness.cli.outputs import add_outputs, check_outputs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `run`."""
    parser.add_argument("--suite", metavar="NAME[,NAME..]", action="append", help="suites to run (repeatable; default: all)")
    parser.add_argument("--case", metavar="NAME", help="run only the cases of this name, of level 2 too")
    parser.add_argument("--fail-fast", action="store_true", help="stop at the first case that is not exact")
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON to a file, or to stdout (-) instead of the table")
    add_outputs(parser)
    add_options(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Run the suites; returns 0, 1 or 2."""
    from harness.judging import check, judge_all, select
    from harness.report.findings import from_run, write_outputs
    from harness.report.json_report import run_document, write_json
    from harness.report.progress import watched
    from harness.report.run_report import print_notes, print_run
    from harness.running import Runner
    from harness.scope import open_scope
    from harness.suites.table import suites_named
    from harness.verdicts import EXACT, collect, exit_code

    options = read_options(arguments)
    suites = suites_named(names(arguments.suite))
    check_outputs(arguments)
    model, scope = open_scope(options)
    runner = Runner(model)
    selection = select(suites, scope, arguments.case)
    check(selection, runner)
    results = []
    for result in watched(judge_all(selection, runner), selection.cases):
        results.append(result)
        if arguments.fail_fast and result.verdict != EXACT:
            break
    collected = collect(selection.suites, results)
    print_notes(collected)
    if arguments.json != "-":
        print_run(collected, options)
    if arguments.json:
        write_json(arguments.json, run_document(collected, options))
    write_outputs(arguments, "strata-harness run", from_run(collected, options))
    return exit_code(collected)
