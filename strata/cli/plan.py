"""`strata plan`: what each stage would place on its device, against the device's budget."""

import argparse
import json

from strata.cli.engine_flags import add_engine_flags, settings_of

SUMMARY = "Print the placement: stages, bytes of weights and sessions, and each device's budget. Computes nothing."
USAGE = "[options]"
MIB = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_engine_flags(parser)


def execute(options: argparse.Namespace) -> int:
    """Run the command; raises DeviceMemoryError, after printing, where a budget does not suffice."""
    from strata.batch.fitting import fit
    from strata.batch.settings import resolve
    from strata.errors import DeviceMemoryError
    from strata.model.model import load_model
    from strata.split.budget import check_budgets, device_bytes
    from strata.split.devices import usable_cores

    model = load_model(options.model)
    settings, n_cores = settings_of(options), usable_cores()
    try:
        resolved, _ = fit(settings, model.config, n_cores, lambda tried: check_budgets(device_bytes(model, tried)))
    except DeviceMemoryError:
        resolved = resolve(settings, model.config, n_cores, room=1)
    devices = device_bytes(model, resolved)
    if options.json:
        print(json.dumps(_as_json(resolved, devices), indent=1))
    else:
        print("\n".join([*_settings_lines(resolved), "", *_device_lines(devices)]))
    check_budgets(devices)
    return 0


def _as_json(resolved, devices) -> dict:
    return {
        "settings": resolved.described(),
        "notes": list(resolved.notes),
        "devices": [
            {"device": d.name, "budget_bytes": d.budget_bytes, "taken_bytes": d.total, "purposes": dict(d.purposes), "chunk_rows": d.chunk_rows or resolved.chunk_rows}
            for d in devices
        ],
    }


def _settings_lines(resolved) -> list[str]:
    shown = [f"{name:<14}{value}" for name, value in resolved.described().items()]
    return shown + [f"{'note':<14}{note}" for note in resolved.notes]


def _device_lines(devices) -> list[str]:
    from strata.split.tier_sizes import BUFFERS

    lines = []
    for device in devices:
        budget = "no limit" if device.budget_bytes is None else f"{device.budget_bytes / MIB:,.1f} MiB"
        lines.append(f"{device.name}: {device.total / MIB:,.1f} MiB of {budget}")
        if device.chunk_rows:
            lines.append(f"  prompt chunks of up to {device.chunk_rows} tokens, their buffers {'beside the cache' if dict(device.purposes)[BUFFERS] else 'lent by the cache'}")
        lines += [f"  {n_bytes / MIB:>10,.1f} MiB  {purpose}" for purpose, n_bytes in device.purposes]
    return lines
