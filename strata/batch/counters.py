"""Counters of a run that are about windows and drafts, all there from the start, so that a missing feature reads as 0.

    decode_windows, slot_windows      windows decoded; (window, slot) pairs: tokens per window = tokens after each first / slot_windows
    verify_windows                    windows with drafts;  rolled_back_windows: those that kept less than all rows
    drafts_offered, drafts_accepted, rows_rejected
    {mtp,suffix,given}_offered, _accepted      the same by source
    mtp_reached_D, mtp_accepted_D     draft-layer drafts number D of a window whose predecessors were accepted; of those, accepted
    draft_steps, draft_cells          steps of the draft layer; cells built
    suffix_hits, suffix_refused       windows of suffix drafts; matches that the draft layer's first draft contradicted
    short_reads, short_read_windows   prompts, or ends of them, read by windows of eight rows; those windows
    rotated_windows                   windows that left slots waiting for their turn
"""

from strata.windows.proposals import SOURCES

MOST_DRAFTS = 7
DRAFT_COUNTERS = (
    "decode_windows", "slot_windows", "verify_windows", "rolled_back_windows", "drafts_offered", "drafts_accepted", "rows_rejected",
    *(f"{source}_{what}" for source in SOURCES for what in ("offered", "accepted")),
    *(f"mtp_{what}_{depth}" for depth in range(1, MOST_DRAFTS + 1) for what in ("reached", "accepted")),
    "draft_steps", "draft_cells", "suffix_hits", "suffix_refused", "short_reads", "short_read_windows", "rotated_windows",
)
