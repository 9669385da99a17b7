"""A plan: one random way of running and the requests that it runs, small enough to paste.

`DIMENSIONS` lists what can vary, each with its values from the plainest on: shrinking walks towards the first.  A plan turns
into a case of two arms: each request alone in an engine of its own, and the plan.  What changes answers (the K/V format) is
the same in both.  Does not know: how plans are found, run or shrunk.
"""

import json
from dataclasses import asdict, dataclass, fields, replace

from harness.arms import Arm, Schedule
from harness.drafts import DraftScript
from harness.suites.contract import Case
from harness.workload import Item, Workload
from strata.batch.settings import EngineSettings
from strata.errors import UsageError

DIMENSIONS: dict[str, tuple] = {
    "stages": (1, 2, 3, 4),
    "cut": ("even", "early", "late"),
    "one_device": (False, True),
    "slots": (1, 2, 3, 4, 5, 6, 8),
    "grouped": (False, True),
    "pipelined": (False, True),
    "prefill": (0, 1, 5, 7, 32),
    "short_read": (0, 9, 64),
    "kv": ("f16", "int8"),
    "threads": (0, 1, 3),
    "drafts": ("none", "right-2", "wrong-3", "mixed-4", "cycle-5", "ragged-8", "mtp", "suffix", "mtp+suffix", "batch-mtp"),
    "stress": ("none", "poison", "jitter"),
    "arrivals": ("together", "staggered", "late"),
    "order": ("forward", "backward"),
    "tier": ("resident", "still", "adapting", "cold", "fetched", "one-slot"),
}
TIERS: dict[str, dict] = {
    "resident": {},
    "still": {"expert_cache": 300, "pcie_frac": 0.0, "adapt_every": 0},
    "adapting": {"expert_cache": 300, "pcie_frac": 0.2, "adapt_every": 1, "adapt_min_gain": 0.0},
    "cold": {"expert_cache": 60, "expert_profile": "none", "pcie_frac": 0.0, "adapt_every": 2},
    "fetched": {"expert_cache": 60, "pcie_frac": 1.0, "adapt_every": 3},
    "one-slot": {"expert_cache": 1, "pcie_frac": 0.55, "adapt_every": 1, "adapt_swaps": 1},
}
"""What the values of `tier` are set as."""
STEPS = {"together": 0, "staggered": 1, "late": 5}
REMEDY = "paste the text that strata-harness fuzz printed"


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of a plan: a prompt's index, how many of its tokens are read, how many are wanted."""

    prompt: int
    length: int
    max_new: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Values of the dimensions, and the requests."""

    stages: int
    cut: str
    one_device: bool
    slots: int
    grouped: bool
    pipelined: bool
    prefill: int
    short_read: int
    kv: str
    threads: int
    drafts: str
    stress: str
    arrivals: str
    order: str
    tier: str
    asks: tuple[Ask, ...]

    def text(self) -> str:
        """Return the plan as one line that `parse_plan` reads; plain values are left out."""
        document = {n: v for n, v in asdict(self).items() if n != "asks" and v != DIMENSIONS[n][0]}
        document["asks"] = [[ask.prompt, ask.length, ask.max_new] for ask in self.asks]
        return json.dumps(document, separators=(",", ":"))


def plainest(asks: tuple[Ask, ...]) -> Plan:
    """Return the plan with the first value of every dimension."""
    return Plan(**{name: values[0] for name, values in DIMENSIONS.items()}, asks=asks)


def parse_plan(text: str) -> Plan:
    """Read a plan's text; raises UsageError naming what is wrong with it."""
    try:
        document = json.loads(text)
        asks = tuple(Ask(*map(int, ask)) for ask in document.pop("asks"))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UsageError(f"plan={text}", "it is not a plan", REMEDY) from None
    for name, value in document.items():
        if name not in DIMENSIONS or value not in DIMENSIONS[name]:
            raise UsageError(f"plan has {name}={value}", "there is no such value", REMEDY)
    if not asks or any(ask.prompt < 0 or ask.length < 1 or ask.max_new < 1 for ask in asks):
        raise UsageError(f"plan={text}", "each request needs a prompt, a length and a number of tokens above 0", REMEDY)
    return replace(plainest(asks), **document)


def complexity(plan: Plan) -> tuple[int, int, int]:
    """Return what shrinking makes small: dimensions that are not plain, requests, tokens."""
    n_changed = sum(getattr(plan, f.name) != DIMENSIONS[f.name][0] for f in fields(plan) if f.name in DIMENSIONS)
    return n_changed, len(plan.asks), sum(ask.length + ask.max_new for ask in plan.asks)


def case_of(plan: Plan, prompts: tuple[Item, ...], n_layers: int) -> Case:
    """Return the pair of arms and the workload of a plan."""
    items = tuple(_item(ask, prompts) for ask in plan.asks)
    step, n = STEPS[plan.arrivals], len(items)
    order = tuple(reversed(range(n))) if plan.order == "backward" else ()
    schedule = Schedule(tuple(step * i for i in range(n)) if step else (), order)
    script, engine_drafts = _drafts(plan.drafts)
    stresses = () if plan.stress == "none" else (plan.stress,)
    plain = EngineSettings(kv=plan.kv, context=1024)
    right = Arm("plan", replace(plain, **_settings(plan, n_layers), **engine_drafts), False, schedule, script, stresses)
    return Case(plan.text(), Workload(items), Arm("solo", plain, alone=True), right, ())


def _item(ask: Ask, prompts: tuple[Item, ...]) -> Item:
    if ask.prompt >= len(prompts):
        raise UsageError(f"prompt={ask.prompt}", f"there are {len(prompts)} prompts, counted from 0", REMEDY)
    return replace(prompts[ask.prompt].cut(ask.length), max_new=ask.max_new)


def _settings(plan: Plan, n_layers: int) -> dict:
    points = _points(plan.stages, plan.cut, n_layers)
    shared = plan.one_device and plan.stages > 1
    n_groups = max((g for g in (plan.stages, 2) if plan.slots % g == 0), default=1) if plan.grouped and not shared else 1
    return {
        "layer_split": points,
        "split_device": (0,) * len(points) if shared else None,
        "devices": "host" if shared else ",".join(["host"] * plan.stages),
        "batch": plan.slots, "batch_groups": n_groups, "pipelined": plan.pipelined, "prefill": plan.prefill,
        "short_read": plan.short_read, "threads": plan.threads,
        **TIERS[plan.tier],
    }


def _points(n_stages: int, cut: str, n_layers: int) -> tuple[int, ...]:
    later = range(1, n_stages)
    if cut == "early":
        return tuple(later)
    if cut == "late":
        return tuple(n_layers - n_stages + i for i in later)
    return tuple(n_layers * i // n_stages for i in later)


def _drafts(name: str) -> tuple[DraftScript | None, dict]:
    pattern, _, width = name.rpartition("-")
    if width.isdigit():
        return DraftScript(int(width), pattern), {}
    return None, {
        "mtp": "mtp" in name, "suffix_draft": 3 if "suffix" in name else 0, "batch_mtp": name == "batch-mtp",
    }
