"""Jobs of the CPU pool: whole experts, from coded rows to outputs, in one compiled call.

A call takes listed experts of one layer and their entries: gate and up of all of them in one fork, silu(gate) * up and its codes
in another, down in a third.  Bits are those of the products and of `host.experts.activate` one by one: nothing here adds.
Does not know: where experts lie, routers, threads.
"""

from functools import cache

from strata.cpu_pool.fork import fork
from strata.cpu_pool.pages import encode_pages, encode_rows
from strata.cpu_pool.row_kernels import vector_body
from strata.numerics.cpu import jit, kernel, mul
from strata.numerics.on_cpu import silu


@jit
def _activate_and_encode(begin, end, arguments):
    """Entries begin .. end-1: gate = silu(gate) * up, then the pages of gate."""
    gates, ups, spans, pages = arguments
    for entry in range(begin, end):
        for i in range(gates.shape[1]):
            gates[entry, i] = mul(silu(gates[entry, i]), ups[entry, i])
    encode_rows(begin, end, (gates, spans, pages))


@cache
def expert_jobs(formats: tuple[int, int, int], n_groups_in: int, n_groups_hidden: int, instructions: str):
    """Return the kernel for experts whose gate, up and down have these formats, on a set with byte products.

    kernel(control, gate, up, down, experts, starts, rows, values, spans, pages, gates, ups, hidden, lines, out): each matrix
    (raw uint8, bytes of an expert, bytes of a row, groups of a row); experts int32 [n]; starts int32 [n + 1] from 0; rows
    int32 [entries]; values float32 [rows, 32 n_groups_in] with spans int32 [entries or more, all 32]; gates, ups float32
    [entries, F] and the buffers of pages, of `rows` and of `entries` rows, are scratch; lines int32 0, 1, 2, ...; out float32
    [entries, H].
    """
    gate_body, gate_grain = vector_body(formats[0], n_groups_in, instructions)
    up_body, up_grain = vector_body(formats[1], n_groups_in, instructions)
    down_body, down_grain = vector_body(formats[2], n_groups_hidden, instructions)

    @jit
    def gate_and_up(begin, end, arguments):
        n_gate, of_gate, of_up = arguments
        if begin < n_gate:
            gate_body(begin, end if end < n_gate else n_gate, of_gate)
        if end > n_gate:
            up_body(begin - n_gate if begin > n_gate else 0, end - n_gate, of_up)

    @kernel
    def run(control, gate, up, down, experts, starts, rows, values, spans, pages, gates, ups, hidden, lines, out):
        encode_pages(control, values, spans, pages)
        n, n_entries, width = experts.size, gates.shape[0], gates.shape[1]
        of_gate, of_up = (*gate, experts, starts, rows, pages, gates), (*up, experts, starts, rows, pages, ups)
        of_a_gate, of_an_up = gate_grain(n, n_groups_in, n_entries), up_grain(n, n_groups_in, n_entries)
        grain = of_a_gate if of_a_gate < of_an_up else of_an_up
        fork(control, gate_and_up, 2 * n * width, grain, (n * width, of_gate, of_up))
        fork(control, _activate_and_encode, n_entries, 1, (gates, ups, spans, hidden))
        grain = down_grain(n, n_groups_hidden, n_entries)
        fork(control, down_body, n * out.shape[1], grain, (*down, experts, starts, lines, hidden, out))

    return run
