"""The expert tiers of one engine: every device's, their rounds, and the counts of routing.

Without an expert cache there is nothing here but, where a profile is to be saved, the counts.  The engine's thread alone
calls it.  Does not know: requests, windows' contents.
"""

from collections.abc import Sequence
from pathlib import Path

from strata.cpu_pool.arena import COPIES, FILE
from strata.errors import UsageError
from strata.experts.usage import new_counts, ranked
from strata.model.model import Model
from strata.model.profile_file import write_profile
from strata.rows import Window
from strata.split.adaptation import Adaptation
from strata.split.lending import Lending
from strata.split.stages import Stage
from strata.split.tier_opening import by_device, open_tiers
from strata.split.tiers import DeviceTier

SERVED = ("vram", "pcie", "cpu")


class EngineTiers:
    """Tiers opened on the stages' devices as `resolved.tier` says."""

    def __init__(self, model: Model, resolved, stages: Sequence[Stage]) -> None:
        self._config, self._settings = model.config, resolved.tier
        self.devices: tuple[DeviceTier, ...] = ()
        self.adaptation: Adaptation | None = None
        self.lending: Lending | None = None
        self.chunk_rows, self.notes = resolved.chunk_rows, ()
        self._is_serial = not resolved.pipelined
        self.counts = None
        self._require_folder()
        if self._settings.cache is not None:
            opened = open_tiers(model, resolved, stages)
            self.devices, self.lending = opened.tiers, Lending(opened.loans)
            self.chunk_rows, self.notes = opened.chunk_rows, opened.notes
        if self.devices or self._settings.profile_save:
            self.counts = new_counts(self._config.n_layers, self._config.n_experts)
            for stage in stages:
                stage.executor.routed = self.counts
        for device, _ in by_device(stages):
            if device.kind != "host":
                device.budget_holds = False  # kernels, graphs and the buffers of decode windows come on top of what was placed
        if self._settings.adapts and not all(tier.holds_all for tier in self.devices):
            self.adaptation = Adaptation(self.devices, self.counts, self._settings)

    def _require_folder(self) -> None:
        """Refuse a profile that could not be written at the end, before anything is opened."""
        path = self._settings.profile_save
        if path and not Path(path).absolute().parent.is_dir():
            raise UsageError(f"expert_profile_save={path}", "its folder is not there", "name a file in a folder that exists")

    def begin_run(self) -> None:
        """Start counting anew."""
        for tier in self.devices:
            tier.begin_run()
        if self.lending is not None:
            self.lending.begin_run()
        if self.adaptation is not None:
            self.adaptation.begin_run()

    def before_window(self) -> None:
        """Have landed what a window may read."""
        if self.adaptation is not None:
            self.adaptation.before_window()

    def refill_before(self, window: Window) -> None:
        """Fill in lent slots of all devices at once before a window that is no prompt chunk; pipelined devices do it by themselves."""
        if self.lending is not None and self._is_serial:
            self.lending.refill_before(window)

    def window_decoded(self) -> None:
        """Take note of a decoded window that was committed."""
        if self.adaptation is not None:
            self.lending.refill()  # a prompt may have been read since; rounds move nothing while slots are lent
            self.adaptation.window_decoded()

    def end_run(self) -> None:
        """End a round that is under way and fill in what is lent; nothing may be computing."""
        self.settle()
        if self.lending is not None:
            self.lending.refill()

    def settle(self) -> None:
        """End a round that is under way, before a prompt is read."""
        if self.adaptation is not None:
            self.adaptation.settle()

    def counters(self) -> dict[str, int]:
        """Return the counters of the run, empty without a tier; names as `strata.batch.counters`."""
        if not self.devices:
            return {}
        found = {"adapt_rounds": 0, "adapt_swaps": 0, "evictions": 0, "adapt_late_steps": 0, "adapt_failed_rounds": 0, "adapt_wait_us": 0}
        for row, prefix in enumerate(("", "prompt_")):
            for column, place in enumerate(SERVED):
                found[f"{prefix}{place}_entries"] = sum(int(tier.served[row, column]) for tier in self.devices)
        for name, bank in (("ram_blobs", COPIES), ("file_blobs", FILE)):
            found[name] = sum(tier.blobs[bank] for tier in self.devices)
        found |= self.lending.counters()
        found["pool_pieces"] = sum(tier.pool_pieces for tier in self.devices)
        for number, tier in enumerate(self.devices):
            found[f"reach_us_{number}"], found[f"pool_us_{number}"] = (int(1e6 * clock.seconds) for clock in (tier.reach, tier.pool))
        if self.adaptation is not None:
            found |= self.adaptation.counters
            found["adapt_wait_us"] = int(1e6 * self.adaptation.wait_seconds)
        return found

    def close(self) -> None:
        """Stop the helper; write the profile of what was routed where one is wanted."""
        if self.adaptation is not None:
            self.adaptation.close()
            self.adaptation = None
        if self.lending is not None:
            self.lending.close()
        for tier in self.devices:
            tier.close()
        for tier in self.devices[:1]:
            tier.arena.close()  # one arena serves all devices
        if self.counts is not None and self._settings.profile_save:
            pairs, shares = ranked(self.counts)
            if len(pairs):
                write_profile(self._settings.profile_save, pairs, shares, self._config)
