"""The settings of drafts, resolved: what runs, and a note for each thing that was asked for and does not.

Drafts never change an answer, so whatever cannot run is switched off with its reason instead of refused; only values that
make no sense are errors.  Does not know: how drafts are made.
"""

from dataclasses import dataclass

from strata.errors import UsageError
from strata.model.config import ModelConfig
from strata.split.placement import StagePlan
from strata.windows.suffix import LONGEST_MATCH, TRIGRAM

MOST_ROWS = 8
BATCH_ROWS = 2
"""Rows of a slot in a window of the batch with proposals: its token and one draft."""
SLOTS_PER_WINDOW = MOST_ROWS // BATCH_ROWS
POLICIES = ("worth", "full")


@dataclass(frozen=True, slots=True)
class DraftSettings:
    """Drafts in force: `mtp` for a request alone, `spec` rows a window, `min_p`, `suffix` the shortest match (0: none),
    `batch_mtp` one proposal per slot in company, `policy` how a window's width is chosen, `coupled` drafts of sampled
    requests are drawn as their tokens will be."""

    mtp: bool = False
    spec: int = 4
    min_p: float = 0.0
    suffix: int = 0
    batch_mtp: bool = False
    policy: str = "worth"
    coupled: bool = False

    @property
    def has_layer(self) -> bool:
        """Whether the draft layer is opened."""
        return self.mtp or self.batch_mtp

    def described(self) -> dict[str, str]:
        """Return the settings in force as text, for reports."""
        yes_no = {True: "yes", False: "no"}
        return {
            "mtp": yes_no[self.mtp], "spec": str(self.spec), "spec_min_p": str(self.min_p), "spec_policy": self.policy,
            "suffix_draft": str(self.suffix), "batch_mtp": yes_no[self.batch_mtp],
            "coupled_drafts": yes_no[self.coupled],
        }


def resolve_drafts(settings, config: ModelConfig, stages: tuple[StagePlan, ...], n_slots: int, n_groups: int) -> tuple[DraftSettings, tuple[str, ...]]:
    """Resolve the draft settings of EngineSettings; raises UsageError for a value that makes no sense."""
    _check(settings, config)
    notes = []
    reason = batch_mtp_reason(settings, stages, n_slots, n_groups) if settings.batch_mtp else ""
    if reason:
        notes.append(f"batch_mtp is off: {reason}; slots decode one token per window")
    has_batch_mtp = settings.batch_mtp and not reason
    mtp = settings.mtp and settings.spec > 1
    if settings.mtp and not mtp:
        notes.append("mtp drafts nothing for a request alone: spec=1 leaves a window no row for a draft")
    suffix = settings.suffix_draft if settings.spec > 1 else 0
    if settings.suffix_draft and not suffix:
        notes.append(f"suffix_draft={settings.suffix_draft} drafts nothing: spec=1 leaves a window no row for a draft")
    coupled = settings.coupled_drafts and (mtp or has_batch_mtp)
    if settings.coupled_drafts and not coupled:
        notes.append("coupled_drafts draws nothing: there is no draft layer at work")
    return DraftSettings(mtp, settings.spec, settings.spec_min_p, suffix, has_batch_mtp, settings.spec_policy, coupled), tuple(notes)


def batch_mtp_reason(settings, stages: tuple[StagePlan, ...], n_slots: int, n_groups: int) -> str:
    """Return why slots cannot verify a proposal each, or an empty text."""
    if n_slots < 2:
        return "there is one slot, which drafts alone"
    if not settings.mtp:
        return "there is no draft layer without --mtp"
    if n_groups > 1:
        return f"the {n_groups} pipelined groups run no drafts; use --batch-groups 1"
    if len({stage.device for stage in stages}) < len(stages):
        return "two stages share a device"
    return ""


def _check(settings, config: ModelConfig) -> None:
    if not 1 <= settings.spec <= MOST_ROWS:
        raise UsageError(f"spec={settings.spec}", f"a window has 1 to {MOST_ROWS} rows", "use a number in between")
    if not 0 <= settings.spec_min_p <= 1:
        raise UsageError(f"spec_min_p={settings.spec_min_p}", "it is not a probability", "use 0 to 1")
    if settings.suffix_draft and not TRIGRAM <= settings.suffix_draft <= LONGEST_MATCH:
        raise UsageError(
            f"suffix_draft={settings.suffix_draft}", f"matches have {TRIGRAM} to {LONGEST_MATCH} tokens", "use a number in between, or 0 for none"
        )
    if settings.spec_policy not in POLICIES:
        raise UsageError(f"spec_policy={settings.spec_policy}", "there is no such policy", f"use one of {', '.join(POLICIES)}")
    if settings.mtp and config.n_draft_layers == 0:
        raise UsageError("mtp=yes", "the model has no draft layer", "name the file that has it too, or leave --mtp out")
