"""The card's benchmark with a tier as tables and as JSON.

Does not know: how anything was measured.
"""

from collections.abc import Iterator
from dataclasses import asdict

from strata.bench.gpu.run import BenchSettings
from strata.bench.gpu.tier_run import TierModel, TierReport, TierSettings
from strata.bench.gpu.tier_windows import TierRates, TierSpeed

HEADER = (
    f"{'rows':>6}{'at':>7}{'wall ms':>9}{'(least - most)':>19}{'tokens/s':>10}{'floor ms':>10}{'ratio':>7}{'chained ms':>12}{'ratio':>7}{'card ms':>9}"
    f"{'RAM ms':>8}{'link ms':>9}{'pool ms':>9}{'pool GB/s':>11}{'of RAM':>8}{'reach ms':>10}{'unworked':>10}{'unmet ms':>10}{'meetings':>10}{'us each':>9}"
    f"{'cached':>8}{'fetched':>9}{'pooled':>8}{'hits':>7}"
)


def lines_of(report: TierReport, settings: BenchSettings, tiers: TierSettings) -> Iterator[str]:
    """Yield the lines of the tables."""
    c, rates = settings.config, report.rates
    yield (
        f"{report.card} (compute capability {report.capability}); {c.n_layers} layers of {c.hidden}, {c.n_experts} experts top {c.n_used} of "
        f"{c.expert_ff}, dense {settings.dense}, head {settings.head}, seed {settings.seed}"
    )
    yield (
        f"{tiers.resident:.0%} of every layer's experts resident, {tiers.pcie_frac:.0%} of the missed ones fetched, the others computed by "
        f"{tiers.n_threads} threads from RAM"
    )
    link = f", link {rates.link / 1e9:,.1f} GB/s" if rates.link else ""
    yield f"card {rates.card / 1e9:,.0f} GB/s (copy, read + written), RAM {rates.ram / 1e9:,.1f} GB/s ({tiers.n_threads} threads read){link}"
    for model in report.models:
        yield from _model_lines(model, rates)


def _model_lines(model: TierModel, rates: TierRates) -> Iterator[str]:
    yield ""
    yield f"experts {model.experts}: {model.n_slots} slots on the card, {model.ram_bytes / 1e9:.1f} GB in RAM; medians, other tokens in every window"
    yield HEADER
    yield from (_line(speed, rates) for speed in model.windows)


def _line(speed: TierSpeed, rates: TierRates) -> str:
    wall, floor, chained = speed.wall_ms, speed.floor_ms(rates), speed.chained_ms(rates)
    card, ram, link = speed.parts_ms(rates)
    ends = f"({wall.least:.2f} - {wall.most:.2f})"
    return (
        f"{speed.n_rows:>6}{speed.position:>7}{wall.median:>9.2f}{ends:>19}{speed.tokens_per_second:>10.1f}{floor:>10.2f}{wall.median / floor:>7.2f}"
        f"{chained:>12.2f}{wall.median / chained:>7.2f}{card:>9.2f}{ram:>8.2f}{link:>9.2f}{speed.pool_ms:>9.2f}{speed.pool_rate / 1e9:>11.1f}"
        f"{100 * speed.pool_rate / rates.ram:>6.0f} %{speed.reach_ms:>10.2f}{speed.unworked_ms.median:>10.2f}{speed.unmet_ms.median:>10.2f}"
        f"{speed.meetings:>10.1f}{speed.meeting_us(rates):>9.1f}{speed.cached:>8.1f}{speed.fetched:>9.1f}{speed.pooled:>8.1f}{100 * speed.hits:>5.0f} %"
    )


def json_of(report: TierReport, settings: BenchSettings, tiers: TierSettings) -> dict:
    """Return everything as plain values; times in the units of their names, bytes, bytes per second."""
    return {
        "card": report.card, "capability": report.capability, "rates": asdict(report.rates), "tier": asdict(tiers),
        "settings": {name: value for name, value in asdict(settings).items() if name != "config"},
        "geometry": {name: value for name, value in asdict(settings.config).items() if isinstance(value, int)},
        "models": [
            {"experts": m.experts, "n_slots": m.n_slots, "ram_bytes": m.ram_bytes, "windows": [_window_json(speed, report.rates) for speed in m.windows]}
            for m in report.models
        ],
    }


def _window_json(speed: TierSpeed, rates: TierRates) -> dict:
    card, ram, link = speed.parts_ms(rates)
    wall, floor, chained = speed.wall_ms.median, speed.floor_ms(rates), speed.chained_ms(rates)
    return asdict(speed) | {
        "tokens_per_second": speed.tokens_per_second, "card_ms": card, "ram_ms": ram, "link_ms": link, "floor_ms": floor, "ratio": wall / floor,
        "chained_ms": chained, "chained_ratio": wall / chained, "pool_bytes_per_second": speed.pool_rate, "hits": speed.hits,
        "meeting_us": speed.meeting_us(rates),
    }
