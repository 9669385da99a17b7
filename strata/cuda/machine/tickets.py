"""A ticket: how many came before, counted in one word of global memory that the last one sets back.

    take_ticket(counters, i, last) -> int32     counters[i] before; it grows by one, and becomes 0 again where it was `last`

The addition is one instruction whose result nobody waits for before it is used.  Orders nothing else.  Does not know: who counts.
"""

import threading

from strata.cuda.machine.seam import SIMULATED, jit

if SIMULATED:
    _TURN = threading.Lock()

    @jit
    def take_ticket(counters, i, last):
        with _TURN:
            before = int(counters[i])
            counters[i] = 0 if before >= last else before + 1
        return before

else:
    from numba.cuda import types
    from numba.cuda.extending import intrinsic

    from strata.cuda.machine.intrinsics import GLOBAL, LONG, WORD, _assembly

    @intrinsic
    def take_ticket(typing_context, counters, i, last):
        def emit(context, builder, signature, arguments):
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            place = builder.gep(data, [arguments[1]])
            address = builder.ptrtoint(builder.addrspacecast(place, WORD.as_pointer(GLOBAL)), LONG)
            return _assembly(builder, WORD, [address, arguments[2]], "atom.relaxed.gpu.global.inc.u32 $0, [$1], $2;", "=r,l,r,~{memory}", True)

        return types.int32(counters, types.int64, types.int32), emit
