"""`strata-harness check`: hold the model to golden files."""

import argparse

from harness.cli.options import add_options, read_options
from harness.cli.outputs import add_outputs, check_outputs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `check`."""
    parser.add_argument("files", metavar="FILE", nargs="*", help="golden files (default: the shipped ones)")
    parser.add_argument("--items", metavar="N", help="check only the first N prompts of each file")
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON to a file, or to stdout (-) instead of the table")
    add_outputs(parser)
    add_options(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Check; returns 0 when all rows are equal, 1 when one differs."""
    from dataclasses import replace
    from pathlib import Path

    from harness.cli.options import number
    from harness.golden.checking import check_all, require_same_model, ways
    from harness.golden.document import read_golden
    from harness.report.findings import from_check, write_outputs
    from harness.report.golden_report import check_document, print_check
    from harness.report.json_report import write_json
    from harness.scope import ROOT, open_scope
    from strata.batch.settings import resolve
    from strata.errors import UsageError
    from strata.split.devices import usable_cores

    options = read_options(arguments)
    check_outputs(arguments)
    n_items = number("items", arguments.items)
    files = [Path(file) for file in arguments.files] or sorted((ROOT / "fixtures" / "golden").glob("*.json"))
    if not files:
        raise UsageError("golden=[]", "no golden file is shipped with these sources", "name one, or make one with strata-harness record")
    goldens = [(file, read_golden(file)) for file in files]
    model, scope = open_scope(options)
    results = []
    for file, golden in goldens:
        settings = scope.settings(batch=options.batch or 8, batch_groups=options.batch_groups or 1)
        settings = replace(settings, rounding=options.rounding or golden.rounding, kv=options.kv or golden.kv)
        resolved = resolve(settings, model.config, usable_cores())
        require_same_model(golden, model, resolved.context)
        part = replace(golden, items=golden.items[:n_items]) if n_items else golden
        results += [(file.name, result) for result in check_all(part, model, ways(settings, model.config.n_layers, options.level))]
    if arguments.json != "-":
        print_check(results)
    if arguments.json:
        write_json(arguments.json, check_document(results, options))
    write_outputs(arguments, "strata-harness check", from_check(results, options))
    return 0 if all(result.is_exact for _, result in results) else 1
