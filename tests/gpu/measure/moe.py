"""Times of the experts block at the real geometry: python -m tests.gpu.measure.moe [variants | quick] [FILE].

For 1, 2, 4 and 8 rows and the formats Q2_0 and Q4_K (its down in Q4_0, since 640 is no multiple of 256), and experts in Q2_0 beside a
shared one in Q4_K: microseconds of each launch, of gate+up and down together and of the whole block in a graph, plain and
programmatic, beside the bytes that must be read (distinct experts, shared expert, router) at 4.3 TB/s; then the same block in
separate launches, as prompt chunks take it.  Sets of rows choose other experts, so that nothing stays in a cache.  `variants`
measures gate+up and down with other constants too, and says where their outputs' bits are not those of the constants in force;
`quick` measures variants alone, of Q4_K at 1 and 8 rows, with a dozen kernels.  No judgement.
"""

import json
import sys

import numpy as np

from tests.gpu.geometry import REAL, flat, normal
from tests.gpu.measure.operations import time_us

BYTES_PER_US = 4.3e6
SETS, C = 24, REAL
FORMATS_OF = {"Q2_0": ("Q2_0",) * 4, "Q4_K": ("Q4_K", "Q4_0") * 2, "Q2_0 and Q4_K": ("Q2_0", "Q2_0", "Q4_K", "Q4_0")}
"""Of gate and up, of down, and of the shared expert's."""
OLD_CUT = {
    "MIN_BLOCKS": 2, "GATE_UP_STAGES": 4, "GATE_UP_ROOM": 80 << 10, "ONE_ROW_GATE_UP": (0, 4, 80 << 10), "DOWN_UNITS": 0, "DOWN_STAGES": 4,
    "DOWN_ROOM": 80 << 10,
}
QUICK = {
    1: ({"DOWN_AHEAD": False}, OLD_CUT, {"DOWN_UNITS": 0, "DOWN_STAGES": 3}),
    8: ({"DOWN_AHEAD": False}, OLD_CUT, {"SHORT_DOWNS": False}, {"SHORT_TURNS": 2}),
}
VARIANTS = (
    *QUICK[1], {"SHORT_DOWNS": False}, {"SHORT_TURNS": 2}, {"MIN_BLOCKS": 2}, {"GATE_UP_STAGES": 2},
    {"GATE_UP_STAGES": 4, "GATE_UP_ROOM": 80 << 10}, {"GATE_UP_UNITS": 1, "GATE_UP_STAGES": 6}, {"ONE_ROW_GATE_UP": (1, 11, 104 << 10)},
    {"DOWN_TURNS": 1}, {"DOWN_TURNS": 4}, {"DOWN_STAGES": 3}, {"DOWN_STAGES": 4}, {"DOWN_TURNS": 1, "DOWN_STAGES": 4}, {"PASS_ROWS": 8},
)


def bank(card, name: str, n_out: int, n_in: int, n_experts: int):
    """Random bytes of n_experts matrices."""
    from strata.cuda.packed.products import Packed
    from strata.formats.table import by_name

    form = by_name(name)
    expert_bytes = n_out * (n_in // form.block_weights) * form.block_bytes
    piece = np.random.default_rng(n_out).integers(0, 256, min(n_experts * expert_bytes, 1 << 26), np.uint8)
    return Packed(card.upload("weights", np.resize(piece, n_experts * expert_bytes)), form.type_id, n_out, n_in, expert_bytes)


class Sets:
    """SETS windows of n_rows rows with their own activations, shared experts and routers, one bank of experts for all."""

    def __init__(self, card, banks: dict, name: str, n_rows: int) -> None:
        from strata.cuda.memory.placed import FloatMatrix, Part
        from strata.cuda.memory.workspace import Workspace
        from strata.cuda.packed.products import code, make_coded
        from strata.cuda.stage.record_moe import MoeRecorder

        *_, up_name, down_name = FORMATS_OF[name]
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

    def outputs(self) -> np.ndarray:
        """The bits of two sets' expert outputs."""
        n = self.n_rows * (C.n_used + 1) * C.hidden
        return np.concatenate([work.get("expert outputs", n).copy_to_host()[:n].view(np.int32) for work in (self.works[0], self.works[-1])])

    def n_distinct(self) -> float:
        """The mean number of distinct experts of a set."""
        return float(np.mean([work.lists("lists", C.n_experts, self.n_rows * C.n_used).n_listed.copy_to_host()[0] for work in self.works]))


def relaunched(launch, programmatic: bool):
    """The same launch, plain or programmatic."""
    from strata.cuda.card.launch import Launch

    return Launch(launch.device, launch.dispatcher, launch.shape, launch.arguments, programmatic)


def floors(name: str, n_rows: int, n_distinct: float) -> dict[str, float]:
    """Microseconds for the bytes of each launch."""
    from strata.formats.table import by_name

    up, down, shared_up, shared_down = (by_name(form) for form in FORMATS_OF[name])
    row = lambda form, n: n // form.block_weights * form.block_bytes  # noqa: E731
    router = 2 * (C.n_experts + 1) * C.hidden
    gate_up = 2 * C.expert_ff * (n_distinct * row(up, C.hidden) + row(shared_up, C.hidden))
    out = C.hidden * (n_distinct * row(down, C.expert_ff) + row(shared_down, C.expert_ff))
    found = {"router": router, "gate+up": gate_up, "down": out}
    return {part: round(n / BYTES_PER_US, 2) for part, n in (found | {"both": gate_up + out, "block": sum(found.values())}).items()}


def part_times(card, made: list[tuple]) -> dict[str, float]:
    """Microseconds of a set's launches, each alone, of gate+up and down together, and of all."""
    parts = {"router": slice(0, 1), "gate+up": slice(1, 2), "down": slice(2, 3), "both": slice(1, 3), "block": slice(0, 3)}
    return {part: round(time_us(card, [one[place] for one in made]), 2) for part, place in parts.items()}


def times_of(card, sets: Sets) -> dict[str, dict[str, float]]:
    """Microseconds by part, plain and programmatic, and the block in separate launches."""
    from strata.cuda.experts import expert_products
    from strata.cuda.stage import record_moe

    found: dict[str, dict[str, float]] = {}
    for kind in ("plain", "programmatic"):
        for part, time in part_times(card, sets.launches(kind == "programmatic")).items():
            found.setdefault(part, {})[kind] = time
    kept = expert_products.fits, record_moe.router_fits
    expert_products.fits = record_moe.router_fits = lambda *_: False
    try:
        for kind in ("plain", "programmatic"):
            found["block"][f"separate, {kind}"] = round(time_us(card, sets.launches(kind == "programmatic")), 2)
    finally:
        expert_products.fits, record_moe.router_fits = kept
    return found


def variant_times(card, sets: Sets, changes: dict[str, int], wanted: np.ndarray) -> dict[str, float | str]:
    """Programmatic microseconds with other module constants; a refusal of the card, or other bits than `wanted`, are reported."""
    from strata.cuda.experts import expert_parts, expert_products, pairs
    from strata.errors import StrataError

    modules = pairs, expert_parts, expert_products
    kept = [(module, name, getattr(module, name)) for name in changes for module in modules if hasattr(module, name)]
    kernels = expert_products.gate_up_kernel, expert_products.down_kernel
    try:
        for module, name, _ in kept:
            setattr(module, name, changes[name])
        for build in kernels:
            build.cache_clear()
        found: dict[str, float | str] = dict(part_times(card, sets.launches(True)))
        n_other = int((sets.outputs() != wanted).sum())
        return found | ({"other bits": f"{n_other} of {wanted.size}"} if n_other else {})
    except (StrataError, IndexError) as error:
        return {"refused": str(error)[:80]}
    finally:
        for module, name, value in kept:
            setattr(module, name, value)
        for build in kernels:
            build.cache_clear()


def banks_of(card, name: str) -> dict:
    """The banks of experts in the formats of a name."""
    up_name, down_name, *_ = FORMATS_OF[name]
    gate_up = {part: bank(card, up_name, C.expert_ff, C.hidden, C.n_experts) for part in ("gate", "up")}
    return gate_up | {"down": bank(card, down_name, C.hidden, C.expert_ff, C.n_experts)}


def measure_variants(card, sets: Sets, variants: tuple[dict, ...]) -> dict[str, dict]:
    """Times by the text of the changes; none first."""
    sets.launches(True)
    wanted, table = sets.outputs(), {}
    for changes in ({}, *variants):
        table[str(changes)] = variant_times(card, sets, changes, wanted)
        print(f"  {changes}: {table[str(changes)]}", flush=True)
    return table


def main() -> None:
    from strata.cuda.card.device import CudaDevice

    words = [word for word in sys.argv[1:] if word not in ("variants", "quick")]
    is_quick, card, table = "quick" in sys.argv, CudaDevice(0), {}
    for name in ("Q4_K",) if is_quick else FORMATS_OF:
        banks = banks_of(card, name)
        for n_rows in QUICK if is_quick else (1, 2, 4, 8):
            sets, key = Sets(card, banks, name, n_rows), f"{name}, {n_rows} rows"
            times = {} if is_quick else times_of(card, sets)
            sets.launches(True)
            n_distinct = sets.n_distinct()
            bounds = floors(name, n_rows, n_distinct)
            table[key] = {"floors": bounds, "times": times}
            print(f"\n{key}, {n_distinct:.1f} distinct experts, floors {bounds}")
            for part, found in times.items():
                best = min(found["plain"], found["programmatic"])
                print(f"  {part:8s} {100 * bounds[part] / best:3.0f} %   {found}", flush=True)
            variants = QUICK[n_rows] if is_quick else VARIANTS if "variants" in sys.argv and n_rows in (1, 8) else ()
            if variants:
                table[key]["variants"] = measure_variants(card, sets, variants)
    if words:
        with open(words[0], "w") as file:
            json.dump({"device": card.card.name, "microseconds": table}, file, indent=1)


if __name__ == "__main__":
    main()
