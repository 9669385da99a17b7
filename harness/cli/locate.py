"""`strata-harness locate`: the first operation whose inputs are equal and whose output differs."""

import argparse

from harness.cli.options import add_options, read_options
from harness.cli.outputs import check_writable

N_CONVERSATIONS = 8
"""Conversations of a pair of arms that is no suite's case."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `locate`."""
    parser.add_argument("case", metavar="SUITE:CASE", nargs="?", help="a suite's case, as `batch:slots-4`")
    arms = parser.add_argument_group("arms, in place of a case")
    arms.add_argument("--left", metavar="WORDS", help="the reference arm, as `alone` or `batch=1`")
    arms.add_argument("--right", metavar="WORDS", help="the other arm, as `batch=4 layer_split=4,8 devices=host,host,host stress=jitter`")
    arms.add_argument("--plan", metavar="TEXT", help="a plan that strata-harness fuzz printed")
    parser.add_argument("--deep", action="store_true", help="look at every operation in the first pass: names differences that no residual shows, sooner")
    parser.add_argument("--items", metavar="N", help="run only the first N conversations")
    parser.add_argument("--plant", metavar="WHERE", help="plant a fault of one unit in the last place in the right arm, as `gdn.scan:layer=5:position=12`")
    parser.add_argument("--json", metavar="FILE", help="write the finding as JSON to a file, or to stdout (-) instead of the report")
    add_options(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Search; returns 1 when the difference is located, 0 when all is equal, 2 when that could not be judged."""
    from harness.faults.ulp import parse_where
    from harness.locate.passes import Passes
    from harness.locate.search import locate
    from harness.report.json_report import write_json
    from harness.report.location import finding_document, print_finding
    from harness.running import Runner
    from harness.scope import open_scope

    options = read_options(arguments)
    check_writable("json", arguments.json)
    plant = parse_where(arguments.plant) if arguments.plant else None
    model, scope = open_scope(options)
    case = _shortened(_case(arguments, scope), arguments.items)
    runner = Runner(model)
    for arm in (case.left, case.right):
        runner.check(arm, case.workload)
    finding = locate(Passes(model, case, plant), arguments.deep)
    command = _command(arguments, options)
    if arguments.json != "-":
        print_finding(finding, case, command)
    if arguments.json:
        write_json(arguments.json, finding_document(finding, case, command))
    return finding.exit_code


def _case(arguments: argparse.Namespace, scope):
    """Return the case that was asked for; raises UsageError where it is not exactly one."""
    from harness.fuzz.plan import case_of, parse_plan
    from harness.locate.arm_words import parse_arm
    from harness.suites.contract import Case
    from strata.errors import UsageError

    by_arms = arguments.left is not None or arguments.right is not None
    if (arguments.case is not None) + by_arms + (arguments.plan is not None) != 1:
        raise UsageError("locate", "it needs one pair of arms", "give SUITE:CASE, or --left and --right, or --plan")
    if arguments.plan is not None:
        return case_of(parse_plan(arguments.plan), scope.prompts, scope.config.n_layers)
    if by_arms:
        left, right = (parse_arm(name, getattr(arguments, name) or "", scope.settings()) for name in ("left", "right"))
        return Case("left against right", scope.workload(N_CONVERSATIONS), left, right, ())
    return _case_of_suite(arguments.case, scope)


def _case_of_suite(name: str, scope):
    from harness.judging import select
    from harness.suites.table import suites_named
    from strata.errors import UsageError

    suite, _, case = name.partition(":")
    cases = [found for _, found in select(suites_named([suite]), scope, every=True).cases]
    chosen = [found for found in cases if found.name == case]
    if not chosen:
        raise UsageError(f"case={name}", "there is no such case", f"use one of {', '.join(f'{suite}:{found.name}' for found in cases)}")
    return chosen[0]


def _shortened(case, items: str | None):
    """Return the case with its first conversations only."""
    from dataclasses import replace

    from harness.arms import Schedule
    from harness.cli.options import number
    from harness.workload import Workload
    from strata.errors import UsageError

    n = number("items", items)
    if n is None:
        return case
    if n == 0:
        raise UsageError("items=0", "nothing would run", "use 1 or more")

    def cut(arm):
        order = tuple(i for i in arm.schedule.order if i < n)
        return replace(arm, schedule=Schedule(arm.schedule.arrivals[:n], order))

    return replace(case, workload=Workload(case.workload.items[:n]), left=cut(case.left), right=cut(case.right))


def _command(arguments: argparse.Namespace, options) -> str:
    """Return the line that repeats this search."""
    import shlex

    words = ["strata-harness", "locate", *([arguments.case] if arguments.case else [])]
    for flag in ("left", "right", "plan", "items", "plant"):
        if getattr(arguments, flag) is not None:
            words += [f"--{flag}", getattr(arguments, flag)]
    return shlex.join([*words, *(["--deep"] if arguments.deep else []), *options.arguments()])
