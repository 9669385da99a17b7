"""The table of subcommands.  A new one is a file with `add_arguments(parser)` and `execute(arguments) -> int`, and a line here.

A command's file imports the standard library only at its top: `--help` stays instant.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand: its name, what it does in one line, and the module that does it."""

    name: str
    purpose: str
    module: str


COMMANDS = (
    Command("run", "Run suites and judge whether all arms give equal bits.", "harness.cli.run"),
    Command("record", "Make a golden file: token ids and hashes of every logit row.", "harness.cli.record"),
    Command("check", "Hold the model to golden files, and name the operation that changed.", "harness.cli.check"),
    Command("compare", "Compare two golden files, or the results of two runs.", "harness.cli.compare"),
    Command("fuzz", "Run random plans until one differs, and shrink it.", "harness.cli.fuzz"),
    Command("locate", "Find the first operation whose inputs are equal and whose output differs.", "harness.cli.locate"),
    Command("mutate", "Plant faults, and see which of them the suites find.", "harness.cli.mutate"),
    Command("list", "List the suites and their purposes.", "harness.cli.list_suites"),
    Command("env", "Show versions, processor, devices and folders.", "harness.cli.show_environment"),
)
