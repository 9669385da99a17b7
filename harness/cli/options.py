"""The options that choose model, workload and settings, shared by all subcommands that run arms.

Values are checked as far as they can be without a model.  Does not know: subcommands.
"""

import argparse
import os

from harness.options import LEVELS, Options
from strata.errors import UsageError
from strata.numerics.rounding import mode_in_force


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `harness.options.Options`."""
    what = parser.add_argument_group("workload")
    what.add_argument("--model", metavar="PATH", help="a .gguf file or a folder of them (default: the shipped model)")
    what.add_argument("--prompts", metavar="FILE", help="JSON list of prompts, as token ids or text (default: prompts.json beside the model)")
    what.add_argument("--max-new", metavar="N", help="tokens of each conversation")
    what.add_argument("--level", metavar="1|2", default="1", help="1: minutes, what CI runs; 2: every prompt, 150 tokens each (default: 1)")
    what.add_argument("--seed", metavar="N", default="1", help="chooses prompts and draft patterns (default: 1)")
    how = parser.add_argument_group("settings (default: as each suite likes)")
    how.add_argument("--batch", metavar="N", help="slots")
    how.add_argument("--batch-groups", metavar="G|auto", help="slot groups pipelined through the stages")
    how.add_argument("--layer-split", metavar="K1[,K2..]", help="first layer of each later stage")
    how.add_argument("--split-device", metavar="D1[,D2..]", help="devices of the later stages, by number")
    how.add_argument("--devices", metavar="LIST", help="such as host,host or host:256m")
    how.add_argument("--rounding", metavar="MODE", help="canonical, device, grouped or wide; grouped with STRATA_IQ_MT_MIN=1 is device")
    how.add_argument("--prefill", metavar="N", help="rows of a prompt chunk")
    how.add_argument("--kv", metavar="FORMAT", help="format of K/V cells: f16, int8 or f32")
    how.add_argument("--context", metavar="N", help="positions per slot")
    how.add_argument("--threads", metavar="N", help="threads per device")
    tier = parser.add_argument_group("expert tier (default: every expert resident)")
    tier.add_argument("--expert-cache", metavar="N|auto", help="experts that each device holds")
    tier.add_argument("--expert-profile", metavar="FILE", help="profile that fills the cache, or none")
    tier.add_argument("--pcie-frac", metavar="F", help="share of missed experts fetched to the device")
    tier.add_argument("--adapt-every", metavar="N", help="decoded windows between rounds of swaps, 0 for none")
    tier.add_argument("--adapt-swaps", metavar="N", help="swaps of a round at most")
    tier.add_argument("--adapt-min-gain", metavar="F", help="usage by which a newcomer must exceed its victim")


def read_options(arguments: argparse.Namespace) -> Options:
    """Return the options of a parsed command line; raises UsageError naming the flag."""
    options = Options(
        level=number("level", arguments.level),
        seed=number("seed", arguments.seed),
        model=arguments.model,
        prompts=arguments.prompts,
        max_new=number("max-new", arguments.max_new),
        batch=number("batch", arguments.batch),
        batch_groups=_or_auto("batch-groups", arguments.batch_groups),
        layer_split=_numbers("layer-split", arguments.layer_split),
        split_device=_numbers("split-device", arguments.split_device),
        devices=arguments.devices,
        rounding=None if arguments.rounding is None else mode_in_force(arguments.rounding, os.environ),
        prefill=number("prefill", arguments.prefill),
        kv=arguments.kv,
        context=number("context", arguments.context),
        threads=number("threads", arguments.threads),
        expert_cache=_or_auto("expert-cache", arguments.expert_cache),
        expert_profile=arguments.expert_profile,
        pcie_frac=_decimal("pcie-frac", arguments.pcie_frac),
        adapt_every=number("adapt-every", arguments.adapt_every),
        adapt_swaps=number("adapt-swaps", arguments.adapt_swaps),
        adapt_min_gain=_decimal("adapt-min-gain", arguments.adapt_min_gain),
    )
    if options.level not in LEVELS:
        raise UsageError(f"level={options.level}", "there is no such level", f"use {' or '.join(map(str, LEVELS))}")
    return options


def names(values: list[str] | None) -> tuple[str, ...]:
    """Split repeated and comma-separated names."""
    return tuple(name.strip() for value in values or () for name in value.split(",") if name.strip())


def number(flag: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        raise UsageError(f"{flag}={text}", "it is not a whole number", f"give one, as --{flag} 4") from None
    if number < 0:
        raise UsageError(f"{flag}={text}", "it is negative", "use 0 or more")
    return number


def _numbers(flag: str, text: str | None) -> tuple[int, ...] | None:
    return None if text is None else tuple(number(flag, part) for part in text.split(","))


def _or_auto(flag: str, text: str | None) -> int | None:
    return 0 if text == "auto" else number(flag, text)


def _decimal(flag: str, text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        raise UsageError(f"{flag}={text}", "it is not a number", f"give one, as --{flag} 0.5") from None
