"""Times of the delta net's scans at the real geometry, variant by variant: python -m tests.gpu.measure.scan [FILE].

Nine kernels, well under a minute once they are compiled.  A window's figure is microseconds of a launch in a graph of launches on
memories of their own, alone and early (programmatic, as windows run it), and the floor, its memories read (and written, where
kept) at COPY_GB_PER_S.  `*` marks what a launch chooses by itself.  Every variant of a case must have the bits of the first: outputs,
memory, tail; the script ends with 1 where one has not.  Against the host they are held by test_operations.py.
"""

import json
import sys
from collections.abc import Iterator

import numpy as np

from tests.gpu.geometry import REAL, CodedOutput, flat, normal, tables_of, window_of
from tests.gpu.measure.operations import time_us

COPY_GB_PER_S = 3750.0
SETS = 12
C = REAL
WINDOWS = (
    ("1 row", ((0, 3000, 1),), True), ("2 conversations", tuple((s, 3000, 1) for s in range(2)), True),
    ("4 conversations", tuple((s, 3000, 1) for s in range(4)), True), ("8 conversations", tuple((s, 3000, 1) for s in range(8)), True),
    ("1 x 8 rows kept", ((0, 3000, 8),), True), ("1 x 4 rows to commit", ((0, 3000, 4),), False),
    ("4 x 2 rows to commit", tuple((s, 3000, 2) for s in range(4)), False),
)


class Inputs:
    """What the scans of a window of up to 8 segments take; memory and tails for SETS layers."""

    def __init__(self, card, window) -> None:
        self.card, self.window, n = card, window, window.n_rows
        heads, size = C.n_ssm_v_heads, C.ssm_state
        self.n_slots = max(segment.slot for segment in window.segments) + 1
        make = lambda *shape: flat(card, normal(2, *shape) * np.float32(0.1))  # noqa: E731
        self.tables = tables_of(card, window, spare=0)
        self.u, self.alpha, self.logits, self.z = make(n, C.ssm_channels), make(n, heads), make(n, heads), make(n, C.ssm_inner)
        self.conv, self.bias, self.rate = make(C.ssm_channels, C.conv_taps), make(heads), flat(card, -np.abs(normal(3, heads)))
        self.weight, self.counters = make(size), card.zeros("counters", 8 * C.n_ssm_qk_heads, np.int32)
        self.w, self.g, self.beta, self.o = make(n, C.ssm_channels), make(n, heads), make(n, heads), make(n, C.ssm_inner)
        self.gated, self.coded = make(n, C.ssm_inner), CodedOutput(card, n, C.ssm_inner)
        self.n_memory, self.n_tail = self.n_slots * heads * size * size, self.n_slots * (C.conv_taps - 1) * C.ssm_channels
        self.some_memory, self.some_tail = normal(4, self.n_memory) * np.float32(0.1), normal(5, self.n_tail)
        self.memory = card.zeros("memory", SETS * self.n_memory, np.float32)
        self.tail = card.zeros("tail", SETS * self.n_tail, np.float32)

    def state(self, layer: int):
        """Memory and tail of a layer."""
        m, t = layer * self.n_memory, layer * self.n_tail
        return self.memory[m : m + self.n_memory], self.tail[t : t + self.n_tail]

    def window_scan(self, layer: int, n_at_once: int):
        from strata.cuda.delta_net.window_scan import launch_window_scan

        memory, tail = self.state(layer)
        return launch_window_scan(
            self.card, C, self.tables, self.window.keep, self.u, self.alpha, self.logits, tail, self.conv, self.bias, self.rate, memory, 0.09,
            self.z, self.weight, self.counters, self.w, self.g, self.beta, self.gated, self.coded.coded, n_at_once=n_at_once,
        )

    def prepare(self):
        from strata.cuda.delta_net.gdn import launch_prepare

        small = (self.conv, self.bias, self.rate, self.w, self.g, self.beta)
        return launch_prepare(self.card, C, self.tables, self.u, self.alpha, self.logits, self.state(0)[1], *small)

    def chunk_scan(self, layer: int, n_held: int):
        from strata.cuda.delta_net.chunk_scan import launch_any_scan

        memory, tail = self.state(layer)
        return launch_any_scan(
            self.card, C, self.tables, self.window.keep, self.w, self.g, self.beta, self.u, memory, tail, self.n_slots, 0.09, self.o, self.z,
            self.weight, self.gated, self.coded.coded, n_held=n_held,
        )

    def results(self, launches) -> tuple[bytes, ...]:
        """Run launches on layer 0's state as it was made; return the bits of what they leave."""
        memory, tail = self.state(0)
        memory.copy_to_device(self.some_memory, stream=self.card.stream)
        tail.copy_to_device(self.some_tail, stream=self.card.stream)
        for launch in launches:
            launch.go()
        self.card.synchronise()
        return tuple(array.copy_to_host().tobytes() for array in (self.gated, memory, tail, self.coded.coded.codes))


def windows(card) -> Iterator[tuple[str, str, dict, bool]]:
    """Yield case, variant, figures, and whether the bits are those of the case's first variant."""
    from strata.cuda.delta_net.window_scan import heads_at_once

    for case, segments, keep in WINDOWS:
        x = Inputs(card, window_of(*segments, keep=keep))
        chosen, first = heads_at_once(card, C.n_ssm_v_heads * x.window.n_rows, keep), None
        for n_at_once in (1, 2, 3) if keep else (1, 2):
            found = x.results([x.window_scan(0, n_at_once)])
            first = first or found
            launches = [x.window_scan(layer, n_at_once) for layer in range(SETS)]
            figures = {"alone": round(time_us(card, [(launch,) for launch in launches]), 2)}
            for launch in launches[1:]:
                launch.follow()
            figures["early"] = round(time_us(card, [(launch,) for launch in launches]), 2)
            figures["floor"] = round(4 * x.n_memory * (2 if keep else 1) / COPY_GB_PER_S / 1000, 2)
            yield case, f"{n_at_once} at once{' *' if n_at_once == chosen else ''}", figures, found == first
        _give_back(card)


def chunks(card) -> Iterator[tuple[str, str, dict, bool]]:
    from strata.cuda.delta_net.chunk_scan import heads_held

    for case, segments in (("2048 rows", ((0, 0, 2048),)), ("2 x 1021 rows", ((0, 0, 1021), (1, 5, 1021)))):
        x, first = Inputs(card, window_of(*segments)), None
        prepare = x.prepare()
        x.results([prepare])
        yield case, "prepare", {"alone": round(time_us(card, [(prepare,)] * 2), 1)}, True
        for n_held in (1, C.n_ssm_v_heads // C.n_ssm_qk_heads):
            scan, gate = x.chunk_scan(0, n_held)
            found = x.results([scan, gate])
            first = first or found
            figures = {"alone": round(time_us(card, [(scan,)] * 2), 1)}
            yield case, f"scan, {n_held} held{' *' if n_held == heads_held(C) else ''}", figures, found == first
        yield case, "gate and norm", {"alone": round(time_us(card, [(gate,)] * 2), 1)}, True
        _give_back(card)


def _give_back(card) -> None:
    for purpose in list(card.taken):
        card.give_back(purpose)


def main() -> int:
    from strata.cuda.card.device import CudaDevice

    card, table, n_different = CudaDevice(0), [], 0
    print(f"{'us':24s}{'variant':18s}{'alone':>9s}{'early':>9s}{'floor':>9s}  bits")
    for room in (windows, chunks):
        for case, variant, figures, is_same in room(card):
            numbers = "".join(f"{figures.get(kind, '-'):>9}" for kind in ("alone", "early", "floor"))
            print(f"{case:24s}{variant:18s}{numbers}  {'equal' if is_same else 'DIFFERENT'}", flush=True)
            table.append({"case": case, "variant": variant, "bits_equal": is_same, **figures})
            n_different += not is_same
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w") as file:
            json.dump({"device": card.card.name, "microseconds": table}, file, indent=1)
    return int(n_different > 0)


if __name__ == "__main__":
    sys.exit(main())
