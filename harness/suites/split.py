"""Split against single: the layers' answers do not depend on how many devices they lie on.

Both arms have the same slots; one runs all layers on one device, the other in stages: two, three and four on as many
devices, split near either end, two on one device (everything shared but the hand-off), with drafts, with prompt chunks.
"""

from dataclasses import replace

from harness.arms import Arm
from harness.drafts import DraftScript
from harness.scope import Scope
from harness.suites.contract import Case, Suite
from strata.batch.settings import EngineSettings

CROSSED = "hand_offs"
MOST_STAGES = 4
SLOTS, ITEMS = 4, 5


def cases(scope: Scope) -> tuple[Case, ...]:
    """Return the cases of the split asked for, or of every kind of split that the devices allow."""
    asked = scope.options.layer_split
    splits = [asked] if asked else default_splits(scope.config.n_layers, n_devices(scope))
    found = [_case(scope, f"{len(split) + 1}-stages-{_text(split)}", split, scope.options.split_device) for split in splits]
    middle = asked or even_split(scope.config.n_layers, 2)
    if scope.options.split_device is None:
        found.append(_case(scope, f"one-device-{_text(middle)}", middle, (0,) * len(middle)))
    if splits:
        found.append(_with_drafts(_case(scope, f"drafts-{_text(middle)}", middle, scope.options.split_device)))
        found.append(_with_chunks(scope, _case(scope, f"chunks-{_text(middle)}", middle, scope.options.split_device)))
    return tuple(found)


def even_split(n_layers: int, n_stages: int) -> tuple[int, ...]:
    """Return the first layers of the later stages, as even as can be."""
    return tuple(n_layers * stage // n_stages for stage in range(1, n_stages))


def default_splits(n_layers: int, n_given: int | None) -> list[tuple[int, ...]]:
    """Return even splits into 2, 3 and 4 stages and the two most uneven ones; n_given devices (None: as many as needed)."""
    most = min(MOST_STAGES if n_given is None else n_given, n_layers)
    splits = [even_split(n_layers, n) for n in range(2, most + 1)] + [(1,), (n_layers - 1,)] * (most > 1)
    return list(dict.fromkeys(splits))


def n_devices(scope: Scope) -> int | None:
    """Return the number of devices that were given, None where none were."""
    return None if scope.options.devices is None else len(scope.options.devices.split(","))


def may_split(scope: Scope) -> bool:
    """Whether a suite may add a case of two stages of its own: no split was asked for, and there is not one device only."""
    return not scope.options.layer_split and n_devices(scope) != 1


def single_settings(scope: Scope, **changes) -> EngineSettings:
    """Return settings with all layers on the first device."""
    first = (scope.options.devices or "host").split(",")[0]
    return scope.settings(**{"devices": first, "layer_split": (), "split_device": None, **changes})


def split_settings(scope: Scope, split: tuple[int, ...], split_device: tuple[int, ...] | None, **changes) -> EngineSettings:
    """Return settings with stages on the devices given, by default as many host devices as there are stages."""
    needed = max((0, *split_device)) + 1 if split_device is not None else len(split) + 1
    devices = scope.options.devices or ",".join(["host"] * needed)
    return scope.settings(**{"devices": devices, "layer_split": split, "split_device": split_device, **changes})


def _text(split: tuple[int, ...]) -> str:
    return "-".join(map(str, split))


def _case(scope: Scope, name: str, split: tuple[int, ...], split_device: tuple[int, ...] | None) -> Case:
    slots = scope.options.batch or SLOTS
    work = scope.workload(ITEMS, all_at_level_2=split_device is None and split == even_split(scope.config.n_layers, 2))
    left = Arm("single", single_settings(scope, batch=slots))
    return Case(name, work, left, Arm(name, split_settings(scope, split, split_device, batch=slots)), (CROSSED,))


def _with_drafts(case: Case) -> Case:
    drafts = DraftScript(width=8, pattern="cycle")
    return replace(case, right=replace(case.right, drafts=drafts), features=(CROSSED, "rolled_back_windows"))


def _with_chunks(scope: Scope, case: Case) -> Case:
    settings = replace(case.right.settings, prefill=scope.chunk_rows(case.workload))
    return replace(case, right=replace(case.right, settings=settings), features=(CROSSED, "chunked_prompts"))


SUITE = Suite("split", "layers in 2 to 4 stages against all on one device", cases)
