"""A line on stderr that is written over while something takes long; nothing where stderr is not a terminal."""

import sys


class ProgressLine:
    """`show` replaces the line, `clear` removes it."""

    def __init__(self, stream=None) -> None:
        self._stream = stream or sys.stderr
        self._is_shown = False
        self._is_terminal = self._stream.isatty()

    def show(self, text: str) -> None:
        if self._is_terminal:
            self._stream.write(f"\r\x1b[K{text}")
            self._stream.flush()
            self._is_shown = True

    def clear(self) -> None:
        if self._is_shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._is_shown = False
