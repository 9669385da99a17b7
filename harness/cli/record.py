"""`strata-harness record`: make a golden file from the model's answers as they are now."""

import argparse

from harness.cli.options import add_options, read_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `record`."""
    parser.add_argument("file", metavar="FILE", help="the golden file to write")
    add_options(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Record; returns 0."""
    from pathlib import Path

    from harness.environment import recorded_environment
    from harness.golden.document import Golden, fingerprint, write_golden
    from harness.golden.recording import golden_items, operation_hashes
    from harness.golden.selection import operation_items, recorded_items
    from harness.report.golden_report import print_recorded
    from harness.scope import open_scope
    from strata.batch.settings import resolve
    from strata.numerics.rotary import fingerprint as rotary_fingerprint
    from strata.numerics.rotary import rotary_table
    from strata.split.devices import usable_cores

    options = read_options(arguments)
    model, scope = open_scope(options)
    settings = scope.settings(batch=options.batch or 8, batch_groups=options.batch_groups or 1)
    resolved = resolve(settings, model.config, usable_cores())
    items = recorded_items(scope)
    table = rotary_table(model.config.rope_base, model.config.rope_dims, resolved.context)
    golden = Golden(
        fingerprint(model), resolved.mode.name, resolved.kv, rotary_fingerprint(table), recorded_environment(), resolved.described(),
        golden_items(model, settings, items),
        tuple(item.label for item in operation_items(items)), operation_hashes(model, settings, operation_items(items)),
    )
    write_golden(Path(arguments.file), golden)
    print_recorded(arguments.file, golden)
    return 0
