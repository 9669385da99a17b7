"""Times of the experts block at the real geometry: python -m tests.gpu.measure_moe [variants] [FILE].

For 1, 2, 4 and 8 rows and the formats Q2_0 and Q4_K (its down in Q4_0, since 640 is no multiple of 256): microseconds of each launch and
of the whole block in a graph, plain and programmatic, beside the bytes that must be read (distinct experts, shared expert, router)
at 4.3 TB/s; then the same block in separate launches, as prompt chunks take it.  Sets of rows choose other experts, so that nothing
stays in a cache.  `variants` measures gate+up and down with other constants too.  No judgement.
"""

import json
import sys

import numpy as np

from tests.gpu.geometry import REAL, flat, normal
from tests.gpu.measure_operations import time_us

BYTES_PER_US = 4.3e6
SETS, C = 24, REAL
FORMATS_OF = {"Q2_0": ("Q2_0", "Q2_0"), "Q4_K": ("Q4_K", "Q4_0")}
VARIANTS = (
    {"STAGES": 3}, {"STAGES": 4}, {"STAGES": 5}, {"STAGES": 6}, {"DOWN_TURNS": 1}, {"DOWN_TURNS": 4}, {"DOWN_TURNS": 1, "MIN_BLOCKS": 3},
    {"PASS_ROWS": 2}, {"PASS_ROWS": 8},
)


def bank(card, name: str, n_out: int, n_in: int, n_experts: int):
    """Random bytes of n_experts matrices."""
    from strata.cuda.products import Packed
    from strata.formats.table import by_name

    form = by_name(name)
    expert_bytes = n_out * (n_in // form.block_weights) * form.block_bytes
    piece = np.random.default_rng(n_out).integers(0, 256, min(n_experts * expert_bytes, 1 << 26), np.uint8)
    return Packed(card.upload("weights", np.resize(piece, n_experts * expert_bytes)), form.type_id, n_out, n_in, expert_bytes)


class Sets:
    """SETS windows of n_rows rows with their own activations, shared experts and routers, one bank of experts for all."""

    def __init__(self, card, banks: dict, name: str, n_rows: int) -> None:
        from strata.cuda.placed import FloatMatrix, Part
        from strata.cuda.products import code, make_coded
        from strata.cuda.record_moe import MoeRecorder
        from strata.cuda.workspace import Workspace

        up_name, down_name = FORMATS_OF[name]
        self.card, self.n_rows, self.blocks = card, n_rows, []
        bf16 = lambda s, n: (normal(s, n, C.hidden).view(np.uint32) >> 16).astype(np.uint16)  # noqa: E731
        for s in range(SETS):
            x, coded = flat(card, normal(100 + s, n_rows, C.hidden)), make_coded(card, "x", n_rows, C.hidden)
            code(card, x, coded, n_rows).go()
            shared = {f"shared_{part}": bank(card, up_name, C.shared_ff, C.hidden, 1) for part in ("gate", "up")}
            shared["shared_down"] = bank(card, down_name, C.hidden, C.shared_ff, 1)
            floats = {
                part: FloatMatrix(flat(card, bf16(s, n).reshape(-1).view(np.uint8)), "BF16", n, C.hidden)
                for part, n in (("router", C.n_experts), ("shared_router", 1))
            }
            self.blocks.append((Part(banks | shared | floats), x, coded))
        self.works = [Workspace(card, f"set {s}") for s in range(SETS)]
        self._recorder = MoeRecorder

    def launches(self, programmatic: bool) -> list[tuple]:
        """Return each set's launches as the recorder lists them."""
        made = []
        for (part, x, coded), work in zip(self.blocks, self.works, strict=True):
            own: list = []
            self._recorder(self.card, C, work, self.n_rows, lambda l, own=own: own.extend(l if isinstance(l, tuple) else (l,))).block(part, x, coded)
            made.append(tuple(relaunched(launch, programmatic) for launch in own))
        for launch in (launch for one in made for launch in one):
            launch.go()
        self.card.synchronise()
        return made

    def n_distinct(self) -> float:
        """The mean number of distinct experts of a set."""
        return float(np.mean([work.lists("lists", C.n_experts, self.n_rows * C.n_used).n_listed.copy_to_host()[0] for work in self.works]))


def relaunched(launch, programmatic: bool):
    """The same launch, plain or programmatic."""
    from strata.cuda.launch import Launch

    return Launch(launch.device, launch.dispatcher, launch.shape, launch.arguments, programmatic)


def floors(name: str, n_rows: int, n_distinct: float) -> dict[str, float]:
    """Microseconds for the bytes of each launch."""
    from strata.formats.table import by_name

    up, down = (by_name(form) for form in FORMATS_OF[name])
    row = lambda form, n: n // form.block_weights * form.block_bytes  # noqa: E731
    router = 2 * (C.n_experts + 1) * C.hidden
    gate_up, out = (n_distinct + 1) * 2 * C.expert_ff * row(up, C.hidden), (n_distinct + 1) * C.hidden * row(down, C.expert_ff)
    found = {"router": router, "gate+up": gate_up, "down": out}
    return {part: round(n / BYTES_PER_US, 2) for part, n in (found | {"block": sum(found.values())}).items()}


def times_of(card, sets: Sets) -> dict[str, dict[str, float]]:
    """Microseconds by part, plain and programmatic, and the block in separate launches."""
    from strata.cuda import expert_products, record_moe

    found: dict[str, dict[str, float]] = {part: {} for part in ("router", "gate+up", "down", "block")}
    for kind in ("plain", "programmatic"):
        made = sets.launches(kind == "programmatic")
        for i, part in enumerate(("router", "gate+up", "down")):
            found[part][kind] = round(time_us(card, [(one[i],) for one in made]), 2)
        found["block"][kind] = round(time_us(card, made), 2)
    kept = expert_products.fits, record_moe.router_fits
    expert_products.fits = record_moe.router_fits = lambda *_: False
    try:
        for kind in ("plain", "programmatic"):
            found["block"][f"separate, {kind}"] = round(time_us(card, sets.launches(kind == "programmatic")), 2)
    finally:
        expert_products.fits, record_moe.router_fits = kept
    return found


def variant_times(card, sets: Sets, changes: dict[str, int]) -> dict[str, float]:
    """Programmatic microseconds of gate+up and down with other module constants; a refusal of the card is reported."""
    from strata.cuda import expert_products, pairs
    from strata.errors import StrataError

    kept = [(module, name, getattr(module, name)) for name in changes for module in (pairs, expert_products) if hasattr(module, name)]
    kernels = expert_products.gate_up_kernel, expert_products.down_kernel
    try:
        for module, name, _ in kept:
            setattr(module, name, changes[name])
        for build in kernels:
            build.cache_clear()
        made = sets.launches(True)
        return {part: round(time_us(card, [(one[i],) for one in made]), 2) for i, part in ((1, "gate+up"), (2, "down"))}
    except (StrataError, IndexError) as error:
        return {"refused": str(error)[:80]}
    finally:
        for module, name, value in kept:
            setattr(module, name, value)
        for build in kernels:
            build.cache_clear()


def main() -> None:
    from strata.cuda.device import CudaDevice

    words = [word for word in sys.argv[1:] if word != "variants"]
    card, table = CudaDevice(0), {}
    for name in FORMATS_OF:
        up_name, down_name = FORMATS_OF[name]
        banks = {part: bank(card, up_name, C.expert_ff, C.hidden, C.n_experts) for part in ("gate", "up")}
        banks["down"] = bank(card, down_name, C.hidden, C.expert_ff, C.n_experts)
        for n_rows in (1, 2, 4, 8):
            sets = Sets(card, banks, name, n_rows)
            times = times_of(card, sets)
            n_distinct = sets.n_distinct()
            bounds = floors(name, n_rows, n_distinct)
            print(f"\n{name}, {n_rows} rows, {n_distinct:.1f} distinct experts")
            for part, found in times.items():
                best = min(found["plain"], found["programmatic"])
                print(f"  {part:8s} floor {bounds[part]:6.2f} us, {100 * bounds[part] / best:3.0f} %   {found}", flush=True)
            table[f"{name}, {n_rows} rows"] = {"floors": bounds, "times": times}
            for changes in VARIANTS if "variants" in sys.argv and n_rows in (1, 8) else ():
                found = variant_times(card, sets, changes)
                table[f"{name}, {n_rows} rows"][str(changes)] = found
                print(f"  {changes}: {found}", flush=True)
    if words:
        with open(words[0], "w") as file:
            json.dump({"device": card.card.name, "microseconds": table}, file, indent=1)


if __name__ == "__main__":
    main()
