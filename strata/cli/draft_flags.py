"""The flags of drafts and of sampling; names and meanings as `EngineSettings` and the request keys."""

import argparse
import os
from collections.abc import Mapping

BATCH_MTP_VARIABLE = "STRATA_BATCH_MTP"


def add_draft_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of drafts; none of them changes an answer."""
    drafts = parser.add_argument_group("drafts (change how fast an answer comes, never the answer)")
    drafts.add_argument("--mtp", action="store_true", help="draft with the model's draft layer")
    drafts.add_argument("--spec", type=int, default=4, metavar="S", help="rows of a window at most, 1 to 8 (default: 4)")
    drafts.add_argument("--spec-min-p", type=float, default=0.0, metavar="P", help="take drafts of at least this probability (default: 0)")
    drafts.add_argument("--spec-policy", default="worth", metavar="NAME", help="worth: as many drafts as they are worth; full: as many as fit (default: worth)")
    drafts.add_argument("--suffix-draft", type=int, default=0, metavar="N", help="copy on from earlier passages that match N tokens or more (default: 0, none)")
    drafts.add_argument("--coupled-drafts", action="store_true", help="draw the drafts of sampled requests as their tokens will be drawn")
    drafts.add_argument("--batch-mtp", action="store_true", help=f"one proposal per slot and window; also {BATCH_MTP_VARIABLE}=1")


def draft_settings_of(options: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> dict[str, object]:
    """Return the draft settings of parsed flags, as arguments of EngineSettings."""
    return {
        "mtp": options.mtp,
        "spec": options.spec,
        "spec_min_p": options.spec_min_p,
        "spec_policy": options.spec_policy,
        "suffix_draft": options.suffix_draft,
        "coupled_drafts": options.coupled_drafts,
        "batch_mtp": options.batch_mtp or environment.get(BATCH_MTP_VARIABLE) == "1",
    }


def add_sampling_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say how tokens are chosen."""
    choice = parser.add_argument_group("how tokens are chosen (docs/SAMPLING.md)")
    choice.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0 takes the largest logit (default: 0)")
    choice.add_argument("--top-k", type=int, default=0, metavar="K", help="draw among the K best, 1 to 64 (default: 0, the 64 best)")
    choice.add_argument("--top-p", type=float, default=1.0, metavar="P", help="draw among those whose probabilities reach P (default: 1, all)")
    choice.add_argument("--min-p", type=float, default=0.0, metavar="P", help="draw among those P times as probable as the best (default: 0, all)")
    choice.add_argument("--seed", type=int, default=0, metavar="N", help="draws depend on it and the position only (default: 0, from the clock)")
    choice.add_argument("--logprobs", type=int, default=-1, metavar="N", help="tell each token's log probability and the N best ids' (default: -1, none)")
    choice.add_argument("--penalty-last-n", type=int, default=64, metavar="N", help="tokens that penalties look back on (default: 64)")
    choice.add_argument("--penalty-repeat", type=float, default=1.0, metavar="X", help="divides logits of seen tokens (default: 1)")
    choice.add_argument("--penalty-freq", type=float, default=0.0, metavar="X", help="is taken off for each time seen (default: 0)")
    choice.add_argument("--penalty-present", type=float, default=0.0, metavar="X", help="is taken off once for a token seen (default: 0)")


def sampling_of(options: argparse.Namespace):
    """Return the Sampling of parsed flags; raises RequestError naming the flag that makes no sense."""
    from strata.sampling.settings import Sampling

    names = ("temperature", "top_k", "top_p", "min_p", "seed", "logprobs", "penalty_last_n", "penalty_repeat", "penalty_freq", "penalty_present")
    return Sampling(**{name: getattr(options, name) for name in names})
