"""Measures float products of prompt chunks:  python -m tests.gpu.measure.chunk_floats [--once] [ROWS]

At the real model's geometry, BF16 weights, 2,048 rows or as many as are named; every kind of kernel that takes a shape must give the bits of
the lanes; the exit status is 1 where one does not.  Two figures: microseconds, and the share of them that the contract's fused
products and additions would take at 128 a cycle of each multiprocessor, 1.8 GHz.  `--once` launches each case once, to be run under a profiler.
"""

import sys

import numpy as np

from strata.cuda.card.device import CudaDevice
from strata.cuda.floats.float_chunks import kind_of
from strata.cuda.packed.products import floats
from strata.numerics.orders import WIDE

SHAPES = (("streams' down", 10240, 320), ("router", 2560, 512), ("streams' up", 320, 10240), ("alpha, beta", 2560, 48), ("n-gram value", 2560, 2560))
OPERATIONS_PER_US = 132 * 128 * 1.8e3
"""Fused multiply-adds or additions, one instruction each, of an H200 in a microsecond."""


def floor_us(n_in: int, n_out: int, n_rows: int) -> float:
    """Return the microseconds of a product's arithmetic: n_in fused products and a tree of the lanes for each output."""
    return n_rows * n_out * (n_in + min(n_in, WIDE) - 1) / OPERATIONS_PER_US


def main(arguments: list[str]) -> int:
    from tests.gpu.measure.products import timed_us

    once, numbers = "--once" in arguments, [int(text) for text in arguments if text.isdecimal()]
    n_rows, device, rng, n_wrong = (numbers or [2048])[0], CudaDevice(0), np.random.default_rng(7), 0
    for name, n_in, n_out in SHAPES:
        weights = (rng.standard_normal(n_out * n_in).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        weights = device.upload("weights", np.concatenate((weights, np.zeros(16, np.uint8))))
        x = device.upload("x", rng.standard_normal(n_rows * n_in).astype(np.float32))
        out, wanted = device.empty("out", n_rows * n_out, np.float32), None
        for kind in dict.fromkeys(("lanes", kind_of(device.card.capability, n_in, n_out, n_rows))):
            launch = floats(device, "BF16", weights, n_in, n_out, x, n_rows, out, kind=kind)
            out.copy_to_device(np.full(out.size, np.nan, np.float32))
            launch.go()
            device.synchronise()
            bits = out.copy_to_host().view(np.uint32)
            wanted = bits if wanted is None else wanted
            same = np.array_equal(bits, wanted)
            n_wrong += not same
            us = 0.0 if once else timed_us(device, [launch] * 4)
            speed = "" if once else f"{us:9.1f} us, floor {100 * floor_us(n_in, n_out, n_rows) / us:5.1f} %"
            print(f"{name:14s} {n_out:5d} x {n_in:5d}  {kind:12s} {speed} {'same bits' if same else 'OTHER BITS'}", flush=True)
        for purpose in list(device.taken):
            device.give_back(purpose)
    return int(n_wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
