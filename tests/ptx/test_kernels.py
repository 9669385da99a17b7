"""What the compiler makes of every kernel: only rounded float32 operations, no spills that matter, registers in bounds.

`.rn` on an addition or a product forbids the assembler to fuse it (PTX ISA, "add", "mul"), so what is asserted on PTX holds
for the machine code; `test_contraction.py` shows both ways of it on machine code.
"""

import pytest

from strata.cuda.card.compiling import compile_ptx, link, why_no_compiler
from tests.ptx.compiled import CAPABILITIES, unrounded_operations

REASON = why_no_compiler()
pytestmark = [pytest.mark.ptx, pytest.mark.skipif(REASON is not None, reason=str(REASON))]
MOST_SPILL_BYTES = 640
"""Bytes a thread may spill: prompt tiles of the older targets reach 600 outside their innermost products."""


def cases():
    if REASON is not None:
        return [pytest.param(None, (9, 0), id="none")]
    from tests.ptx.catalogue import entries

    return [
        pytest.param(entry, capability, id=f"{entry.name} {capability[0]}.{capability[1]}", marks=[] if is_quick(number, entry, which) else [pytest.mark.slow])
        for which, capability in enumerate(CAPABILITIES) for number, entry in enumerate(entries())
    ]


def is_quick(number: int, entry, which: int) -> bool:
    """Whether an entry is compiled for a capability in the default run: every sixth representative one, the capabilities in turn."""
    return entry.representative and number % (6 * len(CAPABILITIES)) == which


@pytest.mark.parametrize(("entry", "capability"), cases())
def test_a_kernel_holds_only_rounded_operations(entry, capability, record_property):
    from strata.cuda.machine.seam import target_of

    ptx = compile_ptx(entry.build(target_of(capability)), entry.signature, capability)
    assert unrounded_operations(ptx) == []
    assert ".local" not in ptx, "an array went to local memory"
    cubin, used = link(ptx, capability)
    record_property("registers", used.registers)
    record_property("spill_bytes", used.spill_store_bytes)
    assert cubin[:4] == b"\x7fELF"
    assert used.registers <= entry.most_registers
    assert used.spill_store_bytes <= MOST_SPILL_BYTES
