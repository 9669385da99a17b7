"""The flags that say how an engine runs, shared by every command that opens one; names and meanings as `EngineSettings`."""

import argparse
import os
from pathlib import Path

from strata.cli.draft_flags import add_draft_flags, draft_settings_of
from strata.cli.tier_flags import add_tier_flags, tier_settings_of

FIXTURE = Path(__file__).resolve().parents[2] / "fixtures" / "strata-mini-mix"
"""The model that comes with the repository."""


def add_engine_flags(parser: argparse.ArgumentParser, prefill: str = "auto") -> None:
    """Add the flags; `prefill` is the default chunk."""
    model = parser.add_argument_group("model")
    model.add_argument("--model", type=Path, default=FIXTURE, metavar="PATH", help="a .gguf file or a folder of them (default: the shipped strata-mini-mix)")
    how = parser.add_argument_group("how to run (in rounding mode canonical none of these changes a bit)")
    how.add_argument("--devices", default="host", metavar="LIST", help="host, or host:SIZE with a budget (256m), separated by commas (default: host)")
    how.add_argument("--layer-split", default="", metavar="K1[,K2..]", help="first layer of each later stage (default: one stage)")
    how.add_argument("--split-device", default="", metavar="D1[,D2..]", help="device of each later stage, counted from 0 (default: the next ones)")
    how.add_argument("--batch", "--slots", type=int, default=1, metavar="N", help="slots for conversations: up to 8, more with --batch-mtp, as many as fit (default: 1)")
    how.add_argument("--batch-groups", default="1", metavar="G", help="groups of slots pipelined through the stages, or auto (default: 1)")
    how.add_argument("--prefill", default=prefill, metavar="ROWS", help=f"prompt tokens read at once, or auto (default: {prefill})")
    how.add_argument("--short-read", type=int, default=0, metavar="N", help="read a prompt, or the end of one, of N tokens or less by windows of eight rows (default: 0, never)")
    how.add_argument("--context", type=int, default=0, metavar="N", help="positions per slot (default: what the model was made for)")
    how.add_argument("--threads", type=int, default=0, metavar="N", help="threads per device (default: the usable cores)")
    add_draft_flags(parser)
    add_tier_flags(parser)
    bits = parser.add_argument_group("what changes bits")
    bits.add_argument("--rounding", default="canonical", metavar="MODE", help="canonical, device, grouped or wide; grouped with STRATA_IQ_MT_MIN=1 is device (default: canonical)")
    bits.add_argument("--kv", default="", metavar="FORMAT", help="format of keys and values: f16, int8 or f32 (default: the rounding mode's own)")
    bits.add_argument("--selection", default="fill", metavar="RULE", help="cells of sparse attention: fill, to the full width, or whole-blocks, as transformers does (default: fill)")


def settings_of(options: argparse.Namespace):
    """Return the EngineSettings of parsed flags; raises UsageError for a value that is not a number where one is needed."""
    from strata.batch.settings import EngineSettings
    from strata.numerics.rounding import mode_in_force
    from strata.split.placement import parse_split

    return EngineSettings(
        devices=options.devices,
        layer_split=parse_split(options.layer_split),
        split_device=whole_numbers("split_device", options.split_device) if options.split_device else None,
        batch=options.batch,
        batch_groups=number_or_auto("batch_groups", options.batch_groups),
        rounding=mode_in_force(options.rounding, os.environ),
        prefill=number_or_auto("prefill", options.prefill),
        short_read=options.short_read,
        kv=options.kv,
        selection=options.selection,
        context=options.context,
        threads=options.threads,
        **draft_settings_of(options),
        **tier_settings_of(options, number_or_auto),
    )


def number_or_auto(name: str, text: str) -> int:
    """Return a whole number, 0 for `auto`; raises UsageError naming the flag."""
    return 0 if text == "auto" else _parsed(name, text, int, "a whole number or auto")


def whole_numbers(name: str, text: str) -> tuple[int, ...]:
    """Return the numbers of a list with commas; raises UsageError naming the flag."""
    return _parsed(name, text, lambda value: tuple(int(part) for part in value.split(",")), "whole numbers separated by commas")


def _parsed(name, text, parse, expected):
    from strata.errors import UsageError

    try:
        return parse(text)
    except ValueError:
        raise UsageError(f"{name}={text}", "it cannot be read", f"give {expected}") from None
