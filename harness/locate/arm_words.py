"""Arms written as words: `batch=4 layer_split=4,8 devices=host,host,host alone`.

Words are NAME=VALUE with names of `EngineSettings`, or of the arm: `alone` (each request in an engine of its own),
`drafts=WIDTH-PATTERN`, `stress=NAME[,NAME..]`, `arrivals=N[,N..]`, `order=N[,N..]`.  Settings not named are those that
every arm shares.  Does not know: what the settings do.
"""

from dataclasses import fields, replace

from harness.arms import Arm, Schedule
from harness.drafts import DraftScript
from strata.batch.settings import EngineSettings
from strata.errors import UsageError

OWN = ("alone", "drafts", "stress", "arrivals", "order")
BOOLEANS = {"yes": True, "true": True, "no": False, "false": False}
OPTIONAL = {"expert_cache": int, "vram_reserve_mib": int, "vram_reserve_later_mib": int, "pcie_frac": float, "resident_budget_gib": float, "arena_pin_gib": float}
"""Types of the settings whose default is none."""
DEFAULTS = {field.name: field.default for field in fields(EngineSettings)}


def parse_arm(name: str, text: str, shared: EngineSettings) -> Arm:
    """Return the arm that a line of words describes; raises UsageError naming the word at fault."""
    settings, own = {}, {}
    for word in text.split():
        key, _, value = word.partition("=")
        key = key.replace("-", "_")
        if key not in OWN and key not in DEFAULTS:
            raise UsageError(f"{name}={word}", f"there is no setting {key}", f"use one of {', '.join((*OWN, *DEFAULTS))}")
        (own if key in OWN else settings)[key] = _value(word, key, value)
    schedule = Schedule(own.get("arrivals", ()), own.get("order", ()))
    return Arm(name, replace(shared, **settings), own.get("alone", False), schedule, own.get("drafts"), own.get("stress", ()))


def _value(word: str, key: str, text: str) -> object:
    """Return a word's value in the type of its setting."""
    try:
        if key == "alone" or isinstance(DEFAULTS.get(key), bool):
            return BOOLEANS[text] if text else True
        if key == "drafts":
            width, _, pattern = text.partition("-")
            return DraftScript(int(width), pattern)
        if key == "stress":
            return tuple(text.split(","))
        if key in ("arrivals", "order", "layer_split", "split_device"):
            return tuple(int(part) for part in text.split(",")) if text else ()
        if key in ("batch_groups", "expert_cache") and text == "auto":
            return 0
        if key in OPTIONAL:
            return OPTIONAL[key](text)
        return type(DEFAULTS[key])(text)
    except (ValueError, KeyError):
        raise UsageError(word, f"its value does not fit {key}", "see strata-harness locate --help") from None
