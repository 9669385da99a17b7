"""What a user asked the harness for, before anything is opened; imports nothing heavy.

None (or empty) means: as the suite likes.  `arguments` gives the options back as a command line, so that every failure
can print what reproduces it.  Does not know: models, suites.
"""

from dataclasses import dataclass, fields

LEVELS = (1, 2)


@dataclass(frozen=True, slots=True)
class Options:
    """Names follow the command line; `batch_groups` and `expert_cache` 0 are auto; `max_new` and `prefill` are counts of tokens."""

    level: int = 1
    seed: int = 1
    model: str | None = None
    prompts: str | None = None
    max_new: int | None = None
    batch: int | None = None
    batch_groups: int | None = None
    layer_split: tuple[int, ...] | None = None
    split_device: tuple[int, ...] | None = None
    devices: str | None = None
    rounding: str | None = None
    prefill: int | None = None
    kv: str | None = None
    context: int | None = None
    threads: int | None = None
    expert_cache: int | None = None
    expert_profile: str | None = None
    pcie_frac: float | None = None
    adapt_every: int | None = None
    adapt_swaps: int | None = None
    adapt_min_gain: float | None = None

    def arguments(self) -> list[str]:
        """Return the options that are not the default, as command line arguments."""
        words: list[str] = []
        for item in fields(self):
            value = getattr(self, item.name)
            if value != item.default:
                words += [f"--{item.name.replace('_', '-')}", _text(item.name, value)]
        return words


def _text(name: str, value: object) -> str:
    if name in ("batch_groups", "expert_cache") and value == 0:
        return "auto"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
