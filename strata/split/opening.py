"""Opening a model's stages on their devices, and closing them.

What is opened is closed again when a later step fails.  Does not know: requests.
"""

from collections.abc import Sequence
from dataclasses import replace

from strata.errors import UsageError
from strata.host.device import HostDevice
from strata.host.drafts import HostDrafts
from strata.host.executor import HostExecutor
from strata.host.placed import PlacedStage, place_stage
from strata.host.placed_drafts import place_drafts
from strata.model.model import Model
from strata.split.devices import DeviceName
from strata.split.placement import StagePlan
from strata.split.stages import Stage


def open_stages(model: Model, resolved) -> tuple[Stage, ...]:
    """Open every stage of `Resolved` settings; raises DeviceMemoryError where a device's budget does not suffice."""
    model = replace(model, config=replace(model.config, selection=resolved.selection))
    used = sorted({plan.device for plan in resolved.stages})
    devices: dict = {}
    try:
        for index in used:
            devices[index] = _open_device(index, resolved.devices[index], resolved.threads)
        return tuple(_open_stage(model, resolved, plan, devices[plan.device]) for plan in resolved.stages)
    except BaseException:
        for device in devices.values():
            device.close()
        raise


def _open_device(index: int, name: DeviceName, threads: int):
    if name.kind == "cuda":
        from strata.cuda.card.device import CudaDevice

        return CudaDevice(name.index, name.budget_bytes)
    return HostDevice(f"{name.kind}[{index}]", name.budget_bytes, threads)


def _open_stage(model: Model, resolved, plan: StagePlan, device) -> Stage:
    if device.kind == "cuda":
        return _open_card_stage(model, resolved, plan, device)
    placed = place_stage(model.weights, model.config, plan.first, plan.last)
    away = 0 if resolved.tier.cache is None else placed.routed_bytes
    device.take(f"weights of {placed.name}", placed.weight_bytes - away)
    executor = HostExecutor(device, model.config, placed, resolved.mode, resolved.kv, resolved.n_slots, resolved.context)
    drafts = _open_drafts(model, resolved, placed, device) if resolved.drafts.has_layer and placed.output is not None else None
    return Stage(plan, executor, resolved.n_slots, drafts)


def _open_card_stage(model: Model, resolved, plan: StagePlan, device) -> Stage:
    from strata.cuda.memory import placed as on_card
    from strata.cuda.stage.executor import CudaExecutor

    if resolved.selection != "fill":
        raise UsageError(f"selection={resolved.selection} on {device.name}", "cards select cells by the rule fill only", "use host devices for other rules")
    device.attach()
    placed = on_card.place_stage(device, model.weights, model.config, plan.first, plan.last, routed=resolved.tier.cache is None)
    executor = CudaExecutor(device, model.config, placed, resolved.mode, resolved.kv, resolved.n_slots, resolved.context)
    drafts = _open_card_drafts(model, resolved, executor) if resolved.drafts.has_layer and placed.output is not None else None
    return Stage(plan, executor, resolved.n_slots, drafts)


def _open_card_drafts(model: Model, resolved, executor):
    from strata.cuda.drafting.draft_layer import CudaDrafts
    from strata.cuda.drafting.placed_drafts import place_drafts as place_on_card

    layer = place_on_card(executor.device, model.weights, model.config, executor.placed)
    return CudaDrafts(executor.device, model.config, layer, resolved.kv, resolved.n_slots, resolved.context, executor.table)


def _open_drafts(model: Model, resolved, placed: PlacedStage, device: HostDevice) -> HostDrafts:
    layer = place_drafts(model.weights, model.config, placed)
    return HostDrafts(device, model.config, layer, resolved.mode, resolved.kv, resolved.n_slots, resolved.context)


def close_stages(stages: Sequence[Stage]) -> None:
    """Close the stages with their draft layer, then their devices; a shared device is closed once."""
    for stage in stages:
        if stage.drafts is not None:
            stage.drafts.close()
        stage.executor.close()
    for device in {id(stage.executor.device): stage.executor.device for stage in stages}.values():
        device.close()
