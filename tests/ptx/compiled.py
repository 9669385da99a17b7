"""Reading the PTX of kernels: which float operations it holds.

Does not know: which kernels there are (catalogue.py), how they are compiled (strata/cuda/card/compiling.py).
"""

import re

CAPABILITIES = ((7, 5), (8, 6), (9, 0), (12, 0))

FLOAT_OPERATION = re.compile(r"^\s*(?:@!?%p\d+\s+)?((?:add|sub|mul|fma|mad|div|rcp|sqrt|rsqrt|ex2|lg2|sin|cos|tanh)\.[\w.]*f(?:16|32|64)\w*)", re.M)
FORBIDDEN = re.compile(r"\.approx|\.ftz|\.sat\.f32|(?<!\w)(?:atom|red)\.[\w.:]*f(?:16|32|64)|\.full\.f32")


def unrounded_operations(ptx: str) -> list[str]:
    """Return float instructions of a kernel that the contract does not allow: not `.rn` on float32, or approximate."""
    bad = [name for name in FLOAT_OPERATION.findall(ptx) if ".rn" not in name.split(".f32")[0] or not name.endswith("f32")]
    return sorted({*bad, *FORBIDDEN.findall(ptx)})
