"""An argument parser whose errors are ours, and whose help looks the same on every Python and terminal."""

import argparse
from functools import partial
from typing import NoReturn

from strata.errors import UsageError

HELP_COLUMNS = 110
HelpFormatter = partial(argparse.HelpFormatter, width=HELP_COLUMNS, max_help_position=32)


class Parser(argparse.ArgumentParser):
    """`argparse`'s parser; unknown flags and values raise UsageError instead of printing the usage."""

    def __init__(self, **options) -> None:
        super().__init__(**{"formatter_class": HelpFormatter, "allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"arguments of {self.prog}", message, f"see {self.prog} --help")
