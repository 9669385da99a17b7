"""The settings of an engine, as asked for and as resolved.

A setting that cannot be honoured as asked is either an error that names it, or (slots, groups) changed with a note that
says so; `Resolved.notes` carries them to the log and into reports.  A pure function of the settings and the model.
"""

from dataclasses import dataclass

from strata.batch.draft_settings import DraftSettings, resolve_drafts
from strata.batch.tier_settings import TierSettings, resolve_tier
from strata.errors import UsageError
from strata.host.cells import cell_format
from strata.model.config import SELECTIONS, ModelConfig
from strata.numerics.rounding import RoundingMode, mode_named
from strata.split.devices import DeviceName, parse_devices
from strata.split.placement import StagePlan, plan_stages

WINDOW_ROWS = 8
"""Rows of a decode window at most: slots, and drafts with them."""
AUTO_CHUNK = 2048


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How to run; names follow the command line.

    `devices` as `strata.split.devices` reads them; `layer_split` the first layer of each later stage; `split_device` the
    later stages' devices by index (None: the next ones); `batch` slots; `batch_groups` a number, 0 for auto; `pipelined`
    False runs the groups one after the other; `prefill` rows of a prompt chunk, 0 for auto; what is left of a prompt to be
    read is read by windows of eight rows where it is `short_read` tokens or less (0: never); `kv` a cell format, empty for the
    rounding mode's own; `selection` how sparse attention chooses cells, `fill` or `whole-blocks`; `context` positions per slot, 0 for the model's; `threads` per device, 0 for the cores there are.

    Drafts: `mtp` the draft layer, `spec` rows a window at most, `spec_min_p` the least probability of a draft,
    `suffix_draft` the shortest match of suffix drafts (0: none), `batch_mtp` one proposal per slot, `spec_policy` `worth`
    (as many drafts as they are worth) or `full` (as many as fit), `coupled_drafts` draws the drafts of sampled requests.

    Expert tier: `expert_cache` slots per device, 0 for auto (None: every expert is resident); `expert_profile` the file that
    fills it (empty: the one beside the model; `none`), `expert_profile_save` where routing's own profile is written at the end;
    `vram_reserve_mib` and `vram_reserve_later_mib` what auto leaves free; `pcie_frac` of missed experts (None: probed);
    `adapt_every` decoded windows a round of at most `adapt_swaps` swaps (0: none), `adapt_decay`, `adapt_min_gain`,
    `adapt_async` moves a round one step per window.  Experts that no device holds are read from the mapped file (`mmap_experts`
    says so), from copies of them (`resident_experts`, at most `resident_budget_gib`, the hottest first), or from a full copy of
    which `arena_pin_gib` is locked (0: all).  A prompt's buffers lie in cache slots where a budget is full (`prefill_borrow`), or
    are each device's own; on a split always with `split_own` 1, with `auto` where they are small beside every budget.
    """

    devices: str = "host"
    layer_split: tuple[int, ...] = ()
    split_device: tuple[int, ...] | None = None
    batch: int = 1
    batch_groups: int = 1
    pipelined: bool = True
    rounding: str = "canonical"
    prefill: int = 0
    short_read: int = 0
    kv: str = ""
    selection: str = "fill"
    context: int = 0
    threads: int = 0
    mtp: bool = False
    spec: int = 4
    spec_min_p: float = 0.0
    suffix_draft: int = 0
    batch_mtp: bool = False
    spec_policy: str = "worth"
    coupled_drafts: bool = False
    expert_cache: int | None = None
    expert_profile: str = ""
    expert_profile_save: str = ""
    vram_reserve_mib: int | None = None
    vram_reserve_later_mib: int | None = None
    pcie_frac: float | None = None
    adapt_every: int = 4
    adapt_swaps: int = 96
    adapt_decay: float = 0.7
    adapt_min_gain: float = 1.5
    adapt_async: bool = False
    resident_experts: bool = False
    resident_budget_gib: float | None = None
    mmap_experts: bool = False
    arena_pin_gib: float | None = None
    prefill_borrow: bool = True
    split_own: str = ""


@dataclass(frozen=True, slots=True)
class Resolved:
    """What runs: every setting with its value in force."""

    devices: tuple[DeviceName, ...]
    stages: tuple[StagePlan, ...]
    n_slots: int
    n_groups: int
    pipelined: bool
    mode: RoundingMode
    chunk_rows: int
    kv: str
    context: int
    threads: int
    notes: tuple[str, ...]
    drafts: DraftSettings = DraftSettings()
    tier: TierSettings = TierSettings()
    short_read: int = 0
    selection: str = "fill"
    chunk_is_auto: bool = True

    def described(self) -> dict[str, str]:
        """Return the settings in force as text, for reports."""
        return {
            "devices": ",".join(device.text for device in self.devices),
            "stages": " ".join(f"{s.first}-{s.last - 1}@{s.device}" for s in self.stages),
            "batch": str(self.n_slots),
            "batch_groups": str(self.n_groups),
            "pipelined": "yes" if self.pipelined else "no",
            "rounding": self.mode.name,
            "prefill": str(self.chunk_rows),
            "short_read": str(self.short_read),
            "kv": self.kv,
            "selection": self.selection,
            "context": str(self.context),
            "threads": str(self.threads),
            **self.drafts.described(),
            **self.tier.described(),
        }


def resolve(settings: EngineSettings, config: ModelConfig, n_cores: int, room: int | None = None) -> Resolved:
    """Resolve settings for a model on a machine with n_cores; raises UsageError naming the setting at fault.

    `room` is how many slots the devices' memory holds (None: it is not known to be short).
    """
    devices = parse_devices(settings.devices)
    stages = plan_stages(config.n_layers, settings.layer_split, settings.split_device, len(devices))
    n_slots, slot_notes = _slots(settings.batch, room)
    n_groups, group_notes = _groups(settings, n_slots, stages)
    mode = mode_named(settings.rounding)
    kv = settings.kv or mode.kv_default
    cell_format(kv)
    if settings.selection not in SELECTIONS:
        raise UsageError(f"selection={settings.selection}", "there is no such rule", f"use one of {', '.join(SELECTIONS)}")
    _at_least("prefill", settings.prefill, 0)
    _at_least("short_read", settings.short_read, 0)
    _at_least("threads", settings.threads, 0)
    pipelined = settings.pipelined and n_groups > 1
    n_used_devices = len({stage.device for stage in stages})
    threads = settings.threads or max(1, n_cores // n_used_devices if pipelined else n_cores)
    drafts, draft_notes = resolve_drafts(settings, config, stages, n_slots, n_groups)
    tier, tier_notes = resolve_tier(settings, n_groups)
    if drafts.batch_mtp:
        n_slots, slot_notes = _fitting(settings.batch, settings.batch, room)
    return Resolved(
        devices, stages, n_slots, n_groups, pipelined, mode, settings.prefill or AUTO_CHUNK, kv,
        _context(settings.context, config), threads, (*slot_notes, *group_notes, *draft_notes, *tier_notes), drafts, tier, settings.short_read, settings.selection,
        settings.prefill == 0,
    )


def _at_least(name: str, value: int, lowest: int) -> None:
    if value < lowest:
        raise UsageError(f"{name}={value}", f"it is below {lowest}", f"use {lowest} or more")


def _slots(batch: int, room: int | None) -> tuple[int, tuple[str, ...]]:
    _at_least("batch", batch, 1)
    if batch > WINDOW_ROWS:
        return _fitting(batch, WINDOW_ROWS, room, f"a window holds {WINDOW_ROWS} rows")
    return _fitting(batch, batch, room)


def _fitting(batch: int, most: int, room: int | None, why: str = "") -> tuple[int, tuple[str, ...]]:
    """Return how many slots run, `most` or what there is room for, and a note where that is not what was asked for."""
    if room is not None and room < most:
        what = "one request at a time" if room == 1 else f"{room} slots"
        return room, (f"batch={batch} runs as {what}: the devices' memory holds no more",)
    return most, (f"batch={batch} runs as {most} slots: {why}",) if why else ()


def _groups(settings: EngineSettings, n_slots: int, stages: tuple[StagePlan, ...]) -> tuple[int, tuple[str, ...]]:
    asked = settings.batch_groups
    _at_least("batch_groups", asked, 0)
    shares_device = len({stage.device for stage in stages}) < len(stages)
    if asked == 0:
        if shares_device:
            return 1, ("batch_groups=auto runs as one group: pipelining needs every stage on its own device",)
        return next(g for g in range(len(stages), 0, -1) if n_slots % g == 0), ()
    if settings.batch % asked:
        raise UsageError(
            f"batch_groups={asked}", f"it does not divide the {settings.batch} slots", "use a divisor, or auto"
        )
    if asked > 1 and shares_device and settings.pipelined:
        return 1, (f"batch_groups={asked} runs as one group: pipelining needs every stage on its own device",)
    fitting = next(g for g in range(min(asked, n_slots), 0, -1) if n_slots % g == 0)
    if fitting != asked:
        return fitting, (f"batch_groups={asked} runs as {fitting}: {n_slots} slots are left",)
    return asked, ()


def _context(asked: int, config: ModelConfig) -> int:
    _at_least("context", asked, 0)
    if asked > config.context_length:
        raise UsageError(f"context={asked}", f"the model was made for {config.context_length} positions", "use that or less")
    return asked or config.context_length
