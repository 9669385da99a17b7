"""The card's benchmark as tables and as JSON.

Does not know: how anything was measured.
"""

from collections.abc import Iterator
from dataclasses import asdict

from strata.bench.gpu.kernel_times import KernelTime, Profile
from strata.bench.gpu.rates import Rates
from strata.bench.gpu.run import BenchSettings, ModelReport, Report
from strata.bench.gpu.windows import WindowSpeed
from strata.cuda.memory.workspace import PLACES

WINDOW_HEADER = (
    f"{'rows':>6}{'at':>7}{'device ms':>11}{'(least - most)':>19}{'tokens/s':>10}{'wall ms':>9}{'tokens/s':>10}{'bytes MB':>10}"
    f"{'floor ms':>10}{'of floor':>10}{'experts':>9}{'launches':>10}{'gdn':>6}{'qsa':>6}{'mean':>6}{'host us/layer':>15}"
)
CHUNK_HEADER = (
    f"{'rows':>6}{'at':>7}{'device ms':>11}{'(least - most)':>19}{'tokens/s':>10}{'wall ms':>9}{'tokens/s':>10}{'bytes ms':>10}"
    f"{'int8 ms':>9}{'float ms':>9}{'of floor':>10}{'experts':>9}{'launches':>10}{'gdn':>6}{'qsa':>6}{'mean':>6}{'host us/layer':>15}"
)
KERNEL_HEADER = (
    f"{'kernel':<54}{'grid':>13}{'threads':>9}{'us':>10}{'KB':>10}{'copy us':>10}{'share':>7}{'times':>7}{'window us':>11}{'of sum':>8}{'so far':>8}"
)
PARTS = ("dense", "experts", "head", "state", "cells", "tables")


def lines_of(report: Report, settings: BenchSettings) -> Iterator[str]:
    """Yield the lines of the tables."""
    c, rates = settings.config, report.rates
    yield (
        f"{report.card} (compute capability {report.capability}); {c.n_layers} layers of {c.hidden}, {c.n_experts} experts top {c.n_used} of "
        f"{c.expert_ff}, dense {settings.dense}, head {settings.head}, seed {settings.seed}; medians of {settings.n_times}"
    )
    yield (
        f"copy {rates.copy.median / 1e9:,.0f} GB/s (read + written), read {rates.read.median / 1e9:,.0f} GB/s, tensor cores "
        f"{rates.int8 / 1e12:,.0f} int8 TOPS, float {rates.fused / 1e12:,.1f} T fused multiply-adds/s"
    )
    yield (
        f"windows: one conversation a row, cells filled with random numbers, every row at position {settings.position}; "
        f"chunks: one prompt from position {settings.chunk_position}; context {settings.context}"
    )
    for model in report.models:
        yield from _model_lines(model, rates)


def _model_lines(model: ModelReport, rates: Rates) -> Iterator[str]:
    yield ""
    yield (
        f"experts {model.experts}: {model.weight_bytes / 1e9:.2f} GB of weights; memory predicted {model.predicted_bytes / 1e9:.3f} GB, reported "
        f"{model.reported_bytes / 1e9:.3f} GB ({model.memory_error:+.2f} %)"
    )
    narrow = [speed for speed in model.windows if speed.n_rows <= PLACES]
    wide = [speed for speed in model.windows if speed.n_rows > PLACES]
    if narrow:
        yield WINDOW_HEADER
        yield from (_window_line(speed, rates) for speed in narrow)
        yield from (_parts_line(speed) for speed in narrow)
    if wide:
        yield CHUNK_HEADER
        yield from (_chunk_line(speed, rates) for speed in wide)
    for tax in model.taxes:
        yield f"canonical tax, {tax.name}: {tax.us:.2f} us, free order {tax.free_us:.2f} us, {tax.percent:+.1f} %"
    yield from model.remarks
    for profile in model.profiles:
        yield from profile_lines(profile, rates.copy.median)


def _start(speed: WindowSpeed) -> str:
    ends = f"({speed.device_ms.least:.3f} - {speed.device_ms.most:.3f})"
    return (
        f"{speed.n_rows:>6}{speed.position:>7}{speed.device_ms.median:>11.3f}{ends:>19}{speed.tokens_per_second:>10,.0f}"
        f"{speed.wall_ms.median:>9.2f}{speed.wall_tokens_per_second:>10,.0f}"
    )


def _end(speed: WindowSpeed) -> str:
    return (
        f"{speed.distinct:>9.1f}{speed.n_launches:>10}{speed.kernels_gdn:>6.1f}{speed.kernels_qsa:>6.1f}{speed.kernels_mean:>6.1f}"
        f"{speed.host_us_per_layer.median:>15.1f}"
    )


def _window_line(speed: WindowSpeed, rates: Rates) -> str:
    floor = speed.bytes_ms(rates.copy.median)
    share = 100 * floor / speed.device_ms.median
    return f"{_start(speed)}{speed.floor.total / 1e6:>10,.0f}{floor:>10.3f}{share:>8.1f} %{_end(speed)}"


def _chunk_line(speed: WindowSpeed, rates: Rates) -> str:
    share = 100 * _floor_ms(speed, rates) / speed.device_ms.median
    parts = f"{speed.bytes_ms(rates.copy.median):>10.3f}{speed.int8_ms(rates.int8):>9.3f}{speed.fused_ms(rates.fused):>9.3f}"
    return f"{_start(speed)}{parts}{share:>8.1f} %{_end(speed)}"


def _floor_ms(speed: WindowSpeed, rates: Rates) -> float:
    """Decode windows have the floor of their bytes, prompt chunks the largest of all."""
    by_bytes = speed.bytes_ms(rates.copy.median)
    return by_bytes if speed.n_rows <= PLACES else speed.floor_ms(rates.copy.median, rates.int8, rates.fused)


def _parts_line(speed: WindowSpeed) -> str:
    parts = ", ".join(f"{name} {getattr(speed.floor, name) / 1e6:,.1f}" for name in PARTS)
    return f"{speed.n_rows:>6} rows, MB: {parts}"


def profile_lines(profile: Profile, bandwidth: float) -> Iterator[str]:
    """Yield a profile's table, the most costly launch of all layers first; then each kind of layer in the order of its launches."""
    yield ""
    yield f"launches of a window of {profile.n_rows} rows, each alone in a graph of all layers' ones; * their weights fit into the cache"
    yield KERNEL_HEADER
    groups: dict[tuple, list[KernelTime]] = {}
    for kernel in profile.kernels:
        groups.setdefault((kernel.name, kernel.grid), []).append(kernel)
    before = 0.0
    for group in sorted(groups.values(), key=lambda group: -_whole_us(group)):
        before += _whole_us(group)
        yield _group_line(group, bandwidth, 1e3 * profile.sum_ms, before)
    for kind in dict.fromkeys(kernel.kind for kernel in profile.kernels):
        yield from _kind_lines([kernel for kernel in profile.kernels if kernel.kind == kind], bandwidth)
    yield f"sum {profile.sum_ms:.3f} ms, window measured {profile.window_ms:.3f} ms, ratio {profile.sum_ms / profile.window_ms:.3f}"


def _whole_us(group: list[KernelTime]) -> float:
    return sum(kernel.window_us for kernel in group)


def _group_line(group: list[KernelTime], bandwidth: float, sum_us: float, so_far: float) -> str:
    one, count, whole = group[0], sum(kernel.count for kernel in group), _whole_us(group)
    us, grid = whole / count, f"{one.grid[0]} x {one.grid[1]}"
    return (
        f"{one.name[:53]:<54}{grid:>13}{one.n_threads:>9}{us:>10.2f}{one.n_bytes / 1e3:>10,.0f}{one.copy_us(bandwidth):>10.2f}"
        f"{100 * one.copy_us(bandwidth) / us:>6.0f}%{count:>7}{whole:>11.1f}{100 * whole / sum_us:>7.1f}%{100 * so_far / sum_us:>7.1f}%"
        f"{' *' if one.cached else ''}"
    )


def _kind_lines(kernels: list[KernelTime], bandwidth: float) -> Iterator[str]:
    once, floor = sum(kernel.us for kernel in kernels), sum(kernel.copy_us(bandwidth) for kernel in kernels)
    yield (
        f"{kernels[0].kind}: {len(kernels)} launches, {once:,.1f} us once (their bytes {floor:,.1f} us), {kernels[0].count} in the window "
        f"{_whole_us(kernels) / 1e3:.3f} ms"
    )
    yield "    " + ", ".join(f"{kernel.name.split()[0]} {kernel.us:.1f}" for kernel in kernels)


def json_of(report: Report, settings: BenchSettings) -> dict:
    """Return everything as plain values; times in the units of their names, bytes, bytes per second."""
    rates = report.rates
    return {
        "card": report.card, "capability": report.capability, "rates": asdict(rates),
        "settings": {name: value for name, value in asdict(settings).items() if name != "config"},
        "geometry": {name: value for name, value in asdict(settings.config).items() if isinstance(value, int)},
        "models": [_model_json(model, rates) for model in report.models],
    }


def _model_json(model: ModelReport, rates: Rates) -> dict:
    return {
        "experts": model.experts, "weight_bytes": model.weight_bytes, "predicted_bytes": model.predicted_bytes,
        "reported_bytes": model.reported_bytes, "memory_error_percent": model.memory_error, "remarks": model.remarks,
        "windows": [_window_json(speed, rates) for speed in model.windows],
        "taxes": [asdict(tax) | {"percent": tax.percent} for tax in model.taxes],
        "profiles": [_profile_json(profile, rates.copy.median) for profile in model.profiles],
    }


def _window_json(speed: WindowSpeed, rates: Rates) -> dict:
    floor = _floor_ms(speed, rates)
    return asdict(speed) | {
        "floor_bytes": speed.floor.total, "bytes_ms": speed.bytes_ms(rates.copy.median), "int8_ms": speed.int8_ms(rates.int8),
        "fused_ms": speed.fused_ms(rates.fused), "floor_ms": floor, "of_floor": floor / speed.device_ms.median,
        "tokens_per_second": speed.tokens_per_second, "wall_tokens_per_second": speed.wall_tokens_per_second,
    }


def _profile_json(profile: Profile, bandwidth: float) -> dict:
    kernels = [
        asdict(kernel) | {"window_us": kernel.window_us, "copy_us": kernel.copy_us(bandwidth), "share": kernel.share(bandwidth)}
        for kernel in profile.kernels
    ]
    return {"n_rows": profile.n_rows, "window_ms": profile.window_ms, "sum_ms": profile.sum_ms, "kernels": kernels}
