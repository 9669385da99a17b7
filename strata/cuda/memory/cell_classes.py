"""Classes of contexts: windows whose rows see about as many cells share a recorded program.

Does not know: windows, programs.
"""

SMALLEST_CLASS = 64
"""Cells of the smallest class."""


def class_of(n_cells: int) -> int:
    """Return the smallest power of two, SMALLEST_CLASS at least, that is not below n_cells."""
    size = SMALLEST_CLASS
    while size < n_cells:
        size *= 2
    return size
