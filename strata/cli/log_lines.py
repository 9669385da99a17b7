"""The log as lines on stderr, for commands that open an engine: what runs otherwise than asked, where slots' drafters are.

Does not know: who logs.
"""

import contextlib
import logging
import sys
from collections.abc import Iterator


class _Lines(logging.Handler):
    """Writes each record as one line to what stderr is at that time; one that names what of strata speaks stands as it is."""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        print(text if text.startswith("strata ") else f"strata: {text}", file=sys.stderr)


@contextlib.contextmanager
def log_lines() -> Iterator[None]:
    """Show the engine's log, from INFO on, until the block ends."""
    logger, lines = logging.getLogger("strata"), _Lines(logging.INFO)
    level, logger.propagate = logger.level, False
    logger.setLevel(logging.INFO)
    logger.addHandler(lines)
    try:
        yield
    finally:
        logger.removeHandler(lines)
        logger.setLevel(level)
        logger.propagate = True
