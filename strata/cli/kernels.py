"""`strata kernels`: compiles the CUDA kernels that a model needs, with or without a card."""

import argparse
from pathlib import Path

from strata.cli.engine_flags import FIXTURE

SUMMARY = "Compile the CUDA kernels of a model ahead of time; needs the extra [cuda] and no card."
USAGE = "[options]"
MIB = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", type=Path, default=FIXTURE, metavar="PATH", help="a .gguf file or a folder of them (default: the shipped strata-mini-mix)")
    parser.add_argument("--capability", default="", metavar="M.N", help="compute capability, as 9.0, or several with commas (default: the first card's)")
    parser.add_argument("--kv", default="f16", metavar="LIST", help="formats of keys and values: f16, int8, f32 (default: f16)")
    parser.add_argument("--slots", type=int, default=1, metavar="N", help="slots for conversations (default: 1)")
    parser.add_argument("--context", type=int, default=0, metavar="N", help="positions per slot (default: what the model was made for)")
    parser.add_argument("--prefill", type=int, default=0, metavar="ROWS", help="rows of the longest prompt chunk (default: as `strata run`)")
    parser.add_argument("--folder", type=Path, default=None, metavar="PATH", help="write a folder for STRATA_CUDA_KERNELS, to be carried to another machine (default: this machine's own cache)")
    parser.add_argument("--processes", type=int, default=0, metavar="N", help="processes (default: the usable cores)")
    parser.add_argument("--list", action="store_true", help="print the kernels and whether they are there; compile nothing")


def execute(options: argparse.Namespace) -> int:
    """Run the command; raises UsageError or DeviceError where something cannot be done, DeviceError where a kernel fails."""
    from strata.cuda.card.compiling import why_no_compiler
    from strata.errors import DeviceError

    capabilities = _capabilities(options.capability)
    reason = why_no_compiler()
    if reason is not None:
        raise DeviceError("kernels cannot be compiled here", reason, 'pip install "strata[cuda]"')
    failures = []
    for capability, kernels in zip(capabilities, _needed(options, capabilities), strict=True):
        failures += _list(options, capability, kernels) if options.list else _build(options, capability, kernels)
    if failures:
        raise DeviceError(f"{len(failures)} kernels", failures[0], "see the lines above")
    return 0


def _capabilities(text: str) -> list[tuple[int, int]]:
    """Return the compute capabilities that are asked for; raises UsageError naming the value at fault."""
    from strata.cuda.card.found import find_cards, refusal_of
    from strata.errors import UsageError

    found = []
    if not text:
        found = [card.capability for card in find_cards() if card.refusal is None][:1]
        if not found:
            raise UsageError("capability", "there is no card here to ask", "name the card's compute capability, as --capability 9.0")
    for part in text.split(",") if text else ():
        major, _, minor = part.strip().partition(".")
        if not (major.isdecimal() and minor.isdecimal()):
            raise UsageError(f"capability={part}", "it is not a compute capability", "give it as 9.0")
        found.append((int(major), int(minor)))
        if refusal := refusal_of(found[-1]):
            raise UsageError(f"capability={part}", refusal, "use another card")
    return found


def _needed(options: argparse.Namespace, capabilities: list[tuple[int, int]]) -> list[list[tuple]]:
    from strata.batch.settings import AUTO_CHUNK, EngineSettings, resolve
    from strata.model.model import load_model
    from strata.split.kernel_plan import needed_kernels

    model = load_model(options.model)
    formats = [kv.strip() for kv in options.kv.split(",")]
    for kv in formats:
        resolved = resolve(EngineSettings(batch=options.slots, kv=kv, context=options.context, prefill=options.prefill), model.config, 1)
    chunk = options.prefill or AUTO_CHUNK
    return [needed_kernels(model.weights, model.config, c, formats, resolved.n_slots, resolved.context, chunk) for c in capabilities]


def _target(options: argparse.Namespace, capability: tuple[int, int]):
    from strata.cuda.card.building import KernelFolder
    from strata.cuda.card.kernel_files import kept_folder

    return KernelFolder(options.folder or kept_folder(), options.folder is not None, capability)


def _list(options: argparse.Namespace, capability: tuple[int, int], kernels: list[tuple]) -> list[str]:
    target = _target(options, capability)
    for path, kernel in {target.path_of(kernel): kernel for kernel in kernels}.items():
        print(f"{'there' if target.holds(kernel) else 'missing':<8}{path.name}")
    return []


def _build(options: argparse.Namespace, capability: tuple[int, int], kernels: list[tuple]) -> list[str]:
    from strata.cli.progress import ProgressLine
    from strata.cuda.card.building import build
    from strata.split.devices import usable_cores

    line, target = ProgressLine(), _target(options, capability)
    try:
        built = build(target, kernels, options.processes or usable_cores(), lambda done, n: line.show(f"compiling kernels: {done} of {n}"))
    finally:
        line.clear()
    name = f"compute capability {capability[0]}.{capability[1]}"
    print(f"{name}: {built.n_wanted} kernels needed, {built.n_there} were there, {built.n_compiled} compiled in {built.seconds:.1f} s")
    print(f"{target.folder}: {built.n_bytes / MIB:.1f} MiB")
    for failure in built.failures:
        print(f"failed: {failure}")
    return list(built.failures)
