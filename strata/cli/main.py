"""`strata`: finds the subcommand, runs it, turns failures into exit codes."""

from collections.abc import Sequence
from importlib import import_module

from strata.cli.failures import guarded
from strata.cli.parser import Parser

COMMANDS = ("run", "plan", "bench", "kernels", "env")
DESCRIPTION = "A reference engine whose answers do not depend on how they are run."
EPILOG = "Exit codes: 0 done, 2 could not (usage, missing file, refused request), 130 interrupted."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; `argv` without the program's name, None for the process's own."""

    def action() -> int:
        options = build_parser().parse_args(argv)
        return options.execute(options)

    return guarded("strata", action)


def build_parser() -> Parser:
    """Return the parser of all commands."""
    parser = Parser(prog="strata", usage="strata COMMAND [options]", description=DESCRIPTION, epilog=EPILOG)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, title="commands", prog="strata")
    for name in COMMANDS:
        module = import_module(f"strata.cli.{name}")
        command = commands.add_parser(name, usage=f"strata {name} {module.USAGE}", help=module.SUMMARY, description=module.SUMMARY)
        module.add_arguments(command)
        command.set_defaults(execute=module.execute)
    return parser
