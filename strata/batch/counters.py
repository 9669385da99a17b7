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

With an expert tier (`strata.split.engine_tiers`), and only then:

    {vram,pcie,cpu}_entries           routed entries of decoded windows by who served them; prompt_{..}_entries those of prompts
    ram_blobs, file_blobs             experts that the pool read from copies in RAM and from the mapped file
    adapt_rounds, adapt_swaps, evictions     rounds held; experts that came and landed; experts that went
    adapt_late_steps, adapt_failed_rounds    steps whose copies were not there yet; rounds given up
    adapt_wait_us                     the main thread's time on rounds
    reach_us_D, pool_us_D             device D: time of its own parts, and of the pool's, in decoded windows
"""

from strata.windows.proposals import SOURCES

MOST_DRAFTS = 7
DRAFT_COUNTERS = (
    "decode_windows", "slot_windows", "verify_windows", "rolled_back_windows", "drafts_offered", "drafts_accepted", "rows_rejected",
    *(f"{source}_{what}" for source in SOURCES for what in ("offered", "accepted")),
    *(f"mtp_{what}_{depth}" for depth in range(1, MOST_DRAFTS + 1) for what in ("reached", "accepted")),
    "draft_steps", "draft_cells", "suffix_hits", "suffix_refused", "short_reads", "short_read_windows", "rotated_windows",
)
