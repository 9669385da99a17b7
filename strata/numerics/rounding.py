"""The named rounding modes: small frozen sets of knobs, and the table of them.

A mode says how activations are coded, and whether a row's bits may depend on its company in a window.  The reduction
orders of `numerics.orders` hold in every mode.  Does not know: executors, operations.
"""

from dataclasses import dataclass

from strata.errors import UsageError


@dataclass(frozen=True, slots=True)
class RoundingMode:
    """Knobs of a rounding mode.

    `coded`: activations are int8 codes (else float32 values meet dequantised weights).
    `lone_expert_span`: values per scale for an expert that has one row in a window; 32 is the canonical span.
    `kv_default`: the K/V format used when none is asked for.
    """

    name: str
    coded: bool
    lone_expert_span: int
    kv_default: str
    explanation: str


MODES = {
    mode.name: mode
    for mode in (
        RoundingMode("canonical", True, 32, "f16", "one contract for every executor: equal bits for any way of running"),
        RoundingMode("grouped", True, 256, "f16", "an expert's lone row is coded per 256 values: bits depend on a row's company"),
        RoundingMode("wide", False, 32, "f32", "activations and K/V stay float32: for checking the maths, not for use"),
    )
}


def mode_named(name: str) -> RoundingMode:
    """Return the mode called `name`; raises UsageError for an unknown one."""
    if name not in MODES:
        raise UsageError(f"rounding={name}", "there is no such rounding mode", f"use one of {', '.join(MODES)}")
    return MODES[name]
