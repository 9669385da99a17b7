"""`strata-harness`: finds the subcommand, runs it, turns failures into exit codes.

`--help` imports neither numba nor numpy nor rich.  Does not know: what subcommands do.
"""

import logging
import sys
from collections.abc import Sequence
from importlib import import_module

from harness.cli.table import COMMANDS
from strata.cli.failures import guarded
from strata.cli.parser import Parser

PROGRAM = "strata-harness"
DESCRIPTION = "Prove, token by token and logit by logit, that every way of running a request gives the same bits."
EPILOG = "Exit codes: 0 all exact, 1 something differs, 2 could not judge (usage, missing file, vacuous), 130 interrupted."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; `argv` without the program's name, None for the process's own."""

    def action() -> int:
        arguments = build_parser().parse_args(argv)
        logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format=f"{PROGRAM}: %(levelname)s: %(message)s")
        return arguments.execute(arguments)

    return guarded(PROGRAM, action)


def build_parser() -> Parser:
    """Return the parser of all subcommands."""
    parser = Parser(prog=PROGRAM, usage=f"{PROGRAM} COMMAND [options]", description=DESCRIPTION, epilog=EPILOG)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, title="commands", prog=PROGRAM)
    for command in COMMANDS:
        module = import_module(command.module)
        usage = f"{PROGRAM} {command.name} [options]"
        sub = commands.add_parser(command.name, usage=usage, help=command.purpose, description=command.purpose, epilog=EPILOG)
        module.add_arguments(sub)
        sub.set_defaults(execute=module.execute)
    return parser


if __name__ == "__main__":
    sys.exit(main())
