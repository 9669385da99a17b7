"""Which room may import which: the house's floors, as data.

A room may import itself and what stands in its line.  `strata.errors`, `strata.rows` and `strata.places` are the
nouns that everybody may know; they know nobody but each other.  A new room is a new line; nothing here is a pattern.
"""

NOUNS = ("errors", "rows", "places")
NUMBERS = (*NOUNS, "numerics", "formats")
EXECUTOR = (*NUMBERS, "model")

STRATA = {
    "": (),
    "errors": (),
    "rows": (),
    "places": ("rows",),
    "numerics": ("errors",),
    "formats": ("errors", "numerics"),
    "model": ("errors", "formats"),
    "cpu_pool": ("errors", "numerics", "formats"),
    "host": (*EXECUTOR, "cpu_pool"),
    "cuda": (*EXECUTOR, "cpu_pool"),
    "experts": ("errors", "numerics"),
    "sampling": ("errors", "numerics"),
    "sessions": (*EXECUTOR, "host", "cuda"),
    "windows": (*EXECUTOR, "sampling", "sessions"),
    "split": (*EXECUTOR, "host", "cuda", "cpu_pool", "experts", "sampling", "sessions", "windows"),
    "batch": (*EXECUTOR, "host", "experts", "sampling", "sessions", "windows", "split"),
    "bench": (*EXECUTOR, "cpu_pool", "host", "cuda", "experts", "windows", "split", "batch"),
    "cli": (*EXECUTOR, "cpu_pool", "host", "cuda", "sampling", "sessions", "windows", "split", "batch", "bench"),
}
"""Room of `strata` -> rooms that it may import; `""` is the package itself."""

CUDA = (
    "machine", "card", "floats", "packed", "memory", "experts", "delta_net", "attention", "residual", "tier", "stage", "drafting",
)
"""Rooms of `strata.cuda`; each imports from itself and those before it."""

FLOORS = {
    ("strata" if not room else f"strata.{room}"): frozenset(f"strata.{other}" for other in others) for room, others in STRATA.items()
}
