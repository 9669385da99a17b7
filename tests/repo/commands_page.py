"""docs/commands.md, made from the parsers themselves; run as `python -m tests.repo.commands_page` to write it.

Every program's and subcommand's help stands in a fixed width, and every parser states its own usage line: argparse would
compose it differently from one Python to the next.
"""

import argparse
from collections.abc import Iterator

from harness.cli.main import build_parser as harness_parser
from strata.cli.main import build_parser as strata_parser
from tests.repo.source import ROOT

PAGE = ROOT / "docs" / "commands.md"
INTRODUCTION = """# Commands

The help texts of `strata-harness` and `strata`, as the programs print them. This page is written by
`python -m tests.repo.commands_page`, and a test compares it with the programs.
"""


def page() -> str:
    """Return the page's text."""
    sections = [INTRODUCTION]
    for parser in (harness_parser(), strata_parser()):
        sections += [f"## {name}\n\n```text\n{text}```\n" for name, text in helps(parser)]
    return "\n".join(sections)


def helps(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Yield (name, help text) of a parser and of its subcommands."""
    yield parser.prog, parser.format_help()
    for action in parser._actions:  # argparse has no public way to list subcommands
        if isinstance(action, argparse._SubParsersAction):
            for subcommand in action.choices.values():
                yield from helps(subcommand)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
