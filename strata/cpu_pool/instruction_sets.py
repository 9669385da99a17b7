"""Which vector instructions this process uses, and the byte products they bring.

    vnni     AVX-512 VNNI with 256-bit vectors, or AVX-VNNI: four byte products are added to a word at once
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

from strata.cpu_pool import products_avx2, products_vnni
from strata.errors import UsageError

PLAIN = "plain"
AVX2_FEATURES = frozenset({"avx2", "fma", "f16c"})
VNNI_FEATURES = (frozenset({"avx512vnni", "avx512vl"}), frozenset({"avxvnni"}))
_MODULES = {"vnni": products_vnni, "avx2": products_avx2}


@dataclass(frozen=True, slots=True)
class ByteProducts:
    """Sums of sixteen byte products in each lane, for four vectors of weight words w0 .. w3 and the 128 bytes at `at`:

        helper(total, w0, w1, w2, w3, at) = total + sum of w[j][i] * x[j][i],  j, i = 0..3,  x int8 in -127..127

    `small(largest)` makes the helper for unsigned weights of at most `largest` <= 127.  `signed()` makes one for int8
    weights, -128 included; its result is too large by `signed_bias` * (sum of x), which the caller takes off.
    """

    name: str
    small: Callable
    signed: Callable
    signed_bias: int


def compiled_features() -> frozenset[str]:
    """Return the CPU features that Numba compiles for."""
    features = cpu_target.target_context.codegen().magic_tuple()[2]
    return frozenset(name[1:] for name in features.split(",") if name.startswith("+"))


def best_set(features: frozenset[str]) -> str:
    """Return the name of the best instruction set for a CPU with these features."""
    if not features >= AVX2_FEATURES:
        return PLAIN
    return "vnni" if any(features >= needed for needed in VNNI_FEATURES) else "avx2"


@cache
def instruction_set() -> str:
    """Return the set that this process uses."""
    return best_set(compiled_features())


@cache
def byte_products(name: str) -> ByteProducts:
    """Return the byte products of a set; raises UsageError for one that has none."""
    if name not in _MODULES:
        raise UsageError(f"instructions={name}", "there are no byte products for it", f"use one of {', '.join(_MODULES)}")
    module = _MODULES[name]
    return ByteProducts(name, cache(module.small), cache(module.signed), module.SIGNED_BIAS)
