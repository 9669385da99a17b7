"""Which vector instructions this process uses, and the byte products they bring.

    avx512   AVX-512 VNNI: four byte products are added to a word at once
    vnni     AVX-VNNI: the same on 256 bits only
    avx2     AVX2, FMA and F16C: byte products meet in 16-bit sums first
    plain    anything else: no byte products here; the plain loops of `strata.host.products` are used instead

The set is the best one among the features that Numba compiles for, which are this CPU's unless NUMBA_CPU_NAME and
NUMBA_CPU_FEATURES say otherwise; asked once in a process.  All sets give equal bits: sums of products of bytes are exact
integers, here as everywhere.  Does not know: weights, scales.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from numba.core.registry import cpu_target

from strata.cpu_pool import products_avx2, products_avx512, products_vnni
from strata.errors import UsageError

PLAIN = "plain"
AVX2_FEATURES = frozenset({"avx2", "fma", "f16c"})
_SETS = (
    ("avx512", AVX2_FEATURES | {"avx512f", "avx512vl", "avx512vnni"}, products_avx512),
    ("vnni", AVX2_FEATURES | {"avxvnni"}, products_vnni),
    ("avx2", AVX2_FEATURES, products_avx2),
)
"""Names, features that are needed, modules; the best first."""


@dataclass(frozen=True, slots=True)
class ByteProducts:
    """Sums of byte products in each lane: vectors of weight words with the codes at an address.

        one(total, w0, w1, w2, w3, page)    total + sum of w[j][i] * x[j][i],  j, i = 0..3,  x int8 in -127..127
        both(u, v, pages, n_bytes)          four sums of the n_bytes (128 or 256) kept at u with four pages' codes, then four of v's

    `small(largest)` makes this pair of helpers for unsigned weights of at most `largest` <= 127, kept as they are.  `signed()`
    makes one for int8 weights, -128 included: results of `one` are too large by `signed_bias` * (sum of x), which the caller takes
    off; those of `both`, for all 256 bytes, by `tiles.KEPT_BIAS` * (sum of x).  `keep_signed(words, at)` keeps eight vectors of int8
    for it, and `build_keep_levels(levels)` makes the same for codes 0..15 that stand for int8 levels.
    """

    name: str
    small: Callable
    signed: Callable
    signed_bias: int
    keep_signed: Callable
    build_keep_levels: Callable


def compiled_features() -> frozenset[str]:
    """Return the CPU features that Numba compiles for."""
    features = cpu_target.target_context.codegen().magic_tuple()[2]
    return frozenset(name[1:] for name in features.split(",") if name.startswith("+"))


def sets_for(features: frozenset[str]) -> tuple[str, ...]:
    """Return the names of the sets that a CPU with these features can run, the best first; `plain` is always the last."""
    return (*(name for name, needed, _ in _SETS if features >= needed), PLAIN)


@cache
def instruction_set() -> str:
    """Return the set that this process uses."""
    return sets_for(compiled_features())[0]


@cache
def byte_products(name: str) -> ByteProducts:
    """Return the byte products of a set; raises UsageError for one that has none."""
    modules = {known: module for known, _, module in _SETS}
    if name not in modules:
        raise UsageError(f"instructions={name}", "there are no byte products for it", f"use one of {', '.join(modules)}")
    module = modules[name]
    return ByteProducts(name, cache(module.small), cache(module.signed), module.SIGNED_BIAS, module.keep_signed, module.build_keep_levels)
