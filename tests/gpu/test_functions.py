"""The transcendental functions and coding helpers: the CPU's bits on a card."""

import numpy as np
import pytest

from tests.gpu.support import assert_same_bits

N = 1 << 20


def every_kind_of_float(seed: int) -> np.ndarray:
    """Return N float32: all bit patterns alike, half of them between -100 and 100."""
    generator = np.random.default_rng(seed)
    wild = generator.integers(0, 1 << 32, N // 2, dtype=np.uint32).view(np.float32)
    return np.concatenate((wild, generator.uniform(-100, 100, N - N // 2).astype(np.float32)))


@pytest.mark.parametrize("name", ["exp", "sigmoid", "silu", "softplus"])
def test_a_function_has_the_bits_of_the_cpu(name, card):
    import numba
    from numba import cuda

    from strata.cuda.card.launch import Launch, Shape
    from strata.cuda.machine import on_cuda
    from strata.cuda.machine.seam import kernel
    from strata.numerics import on_cpu

    on_card, on_host = getattr(on_cuda, name), getattr(on_cpu, name)

    @kernel(256)
    def run(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = on_card(x[i])

    @numba.njit
    def reference(x, out):
        for i in range(x.size):
            out[i] = on_host(x[i])

    x = every_kind_of_float(1)
    wanted = np.empty_like(x)
    reference(x, wanted)
    placed, out = card.upload("x", x), card.empty("out", N, np.float32)
    Launch(card, run, Shape((N // 256, 1), 256), (placed, out)).go()
    card.synchronise()
    assert_same_bits(name, out.copy_to_host(), wanted)
