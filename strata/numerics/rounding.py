"""The named rounding modes: small frozen sets of knobs, and the table of them.

A mode says how activations are coded, whether that depends on where a product is computed, and whether a row's bits may depend
on its company in a window.  The reduction orders of `numerics.orders` hold in every mode.  Does not know: executors, operations.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from strata.errors import UsageError

MT_MIN_VARIABLE = "STRATA_IQ_MT_MIN"


@dataclass(frozen=True, slots=True)
class RoundingMode:
    """Knobs of a rounding mode.

    `coded`: activations are int8 codes (else float32 values meet dequantised weights).
    `half_scales`: what a device computes has its activations' scales rounded to binary16; the CPU pool's stay float32.
    `lone_expert_span`: values per scale for an expert that has one row in a window; 32 is the canonical span.
    `kv_default`: the K/V format used when none is asked for.
    """

    name: str
    coded: bool
    half_scales: bool
    lone_expert_span: int
    kv_default: str
    explanation: str


MODES = {
    mode.name: mode
    for mode in (
        RoundingMode("canonical", True, False, 32, "f16", "one contract for every executor: equal bits for any way of running"),
        RoundingMode("device", True, True, 32, "f16", "a device rounds scales to half, the CPU pool does not: bits depend on where an expert lies"),
        RoundingMode("grouped", True, False, 256, "f16", "an expert's lone row is coded per 256 values: bits depend on a row's company"),
        RoundingMode("wide", False, False, 32, "f32", "activations and K/V stay float32: for checking the maths, not for use"),
    )
}


def mode_named(name: str) -> RoundingMode:
    """Return the mode called `name`; raises UsageError for an unknown one."""
    if name not in MODES:
        raise UsageError(f"rounding={name}", "there is no such rounding mode", f"use one of {', '.join(MODES)}")
    return MODES[name]


def mode_in_force(name: str, environment: Mapping[str, str]) -> str:
    """Return the name of the mode that runs: `grouped` with STRATA_IQ_MT_MIN=1 is `device`.

    The variable is the number of rows from which on an expert's rows are coded as a group: 2 by default, 1 for always.
    Raises UsageError for another value.
    """
    text = environment.get(MT_MIN_VARIABLE, "2")
    if text not in ("1", "2"):
        raise UsageError(f"{MT_MIN_VARIABLE}={text}", "an expert's rows are coded as a group from 2 rows on, or always", "use 1, or leave it unset")
    return "device" if name == "grouped" and text == "1" else name
