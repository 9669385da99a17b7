"""`strata-harness mutate`: plant faults, and see which of them the suites find."""

import argparse

from harness.cli.options import names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `mutate`."""
    parser.add_argument("--list", action="store_true", help="print the catalogue and plant nothing")
    parser.add_argument("--kind", metavar="KIND[,KIND..]", action="append", help="only faults of these kinds (repeatable)")
    parser.add_argument(
        "--name", metavar="NAME[,NAME..]", action="append", help="only these faults; `control` plants nothing and meets every check"
    )
    parser.add_argument("--sample", metavar="N", help="draw N faults, the kinds in turn (default: all)")
    parser.add_argument("--seed", metavar="S", default="1", help="chooses the sample (default: 1)")
    parser.add_argument("--own", action="store_true", help="only the checks that should see a fault: no others for survivors")
    parser.add_argument(
        "--devices", metavar="CARD", help="open right arms on a card, as cuda:0, and plant only faults at points that cards show and of the tier, on their own checks"
    )
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON to a file, or to stdout (-) instead of the tables")


def execute(arguments: argparse.Namespace) -> int:
    """Try the faults; returns 0 where 95 % were killed and every survivor is explained, else 1."""
    from harness.cli.options import number
    from harness.cli.outputs import check_writable
    from harness.faults.catalogue.table import chosen, sample

    check_writable("json", arguments.json)
    n, seed = number("sample", arguments.sample), number("seed", arguments.seed)
    faults = chosen(names(arguments.name), names(arguments.kind), arguments.devices is not None)
    if arguments.devices is not None:
        from harness.faults.catalogue.cards import planted_on

        faults = planted_on(arguments.devices, faults)
    if n is not None:
        faults = sample(faults, n, seed)
    if arguments.list:
        from harness.report.mutate_report import print_list

        print_list(faults)
        return 0
    return _campaign(arguments, faults)


def _campaign(arguments: argparse.Namespace, faults) -> int:
    from harness.faults.catalogue.cards import control_on
    from harness.faults.fault import CONTROL
    from harness.faults.planting import Bench
    from harness.faults.score import exit_code
    from harness.faults.trial import ALL_RINGS, try_fault
    from harness.report.json_report import write_json
    from harness.report.mutate_report import mutate_document, print_trials, watched
    from harness.scope import MODEL
    from strata.model.model import load_model

    without = control_on(arguments.devices) if arguments.devices else CONTROL
    bench = Bench(load_model(MODEL), without)
    rings = 1 if arguments.own or arguments.devices else ALL_RINGS
    trials = list(watched((try_fault(fault, bench, rings) for fault in faults), faults))
    if arguments.json != "-":
        print_trials(trials)
    if arguments.json:
        asked = {name: getattr(arguments, name) for name in ("kind", "name", "sample", "seed", "own", "devices")}
        write_json(arguments.json, mutate_document(trials, asked))
    return exit_code(trials)
