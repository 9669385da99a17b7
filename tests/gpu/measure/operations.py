"""Times of a layer's operations at the real geometry: python -m tests.gpu.measure.operations [FILE [ROWS ...]].

A figure is the time of one set of launches inside a graph of many, from events, the median of several replays; inputs are random
and lie in several sets, so that what a layer reads once does not stay in a cache.  For windows: alone (every launch waits for the one
before), early (programmatic launches, as windows run them), and the floor, the set's bytes at COPY_GB_PER_S (of chunks: the rows').
Prints a table and writes JSON.  No judgement.
"""

import json
import statistics
import sys
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from tests.gpu.geometry import REAL, CodedOutput, flat, normal, single_rows, tables_of, window_of
from tests.gpu.measure.layers import half_layers, products

SETS, REPLAYS = 16, 15
COPY_GB_PER_S = 4300.0
"""An H200's device copy, bytes read plus bytes written."""
C = REAL


def time_us(card, sets: list[tuple]) -> float:
    """Return microseconds per set of launches."""
    from strata.cuda.card.graphs import Graph

    launches = [launch for one in sets for launch in one]
    for launch in launches:
        launch.go()
    card.synchronise()
    graph, times = Graph(card, launches), []
    for _ in range(REPLAYS):
        begin, end = card.event(timing=True), card.event(timing=True)
        begin.record(card.stream)
        graph.replay()
        end.record(card.stream)
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / len(sets))
    graph.close()
    return statistics.median(times)


def window(n_rows: int, start: int = 3000):
    """A window of single rows up to 8, else one prompt chunk."""
    return single_rows(n_rows, [start] * n_rows) if n_rows <= 8 else window_of((0, start, n_rows))


def streams(card, n: int) -> Iterator[tuple[str, Callable]]:
    from strata.cuda.experts.combine import Combined, launch_combine
    from strata.cuda.residual.read_mix import launch_read_mix
    from strata.cuda.residual.streams import launch_low_rank_gate, launch_mix, launch_write_normalise

    width, sets = C.residual_width, SETS if n <= 8 else 2
    make = lambda *shape: flat(card, normal(1, *shape))  # noqa: E731
    residual, y, inject, norm, normed, low = make(n, width), make(n, C.hidden), make(n, 4), make(width), make(n, width), make(n, C.low_rank)
    mixed, coded = make(n, C.hidden), CodedOutput(card, n, C.hidden)
    entry_of = flat(card, np.arange(n * C.n_used, dtype=np.int32))
    experts = Combined(C.n_used, make(n * C.n_used, C.hidden), entry_of, make(n, C.n_used), make(n, C.hidden), make(n))
    ups = [flat(card, np.random.default_rng(s).integers(0, 200, 2 * width * C.low_rank).astype(np.uint8)) for s in range(sets)]
    write = partial(launch_write_normalise, card, C, residual, n, inject=inject, norm=norm, normed=normed)
    yield "write+norm", [(write(y=y),)] * sets
    yield "combine+write+norm", [(write(experts=experts),) if n <= 8 else (launch_combine(card, C.hidden, experts, n, y), write(y=y))] * sets
    if n > 8:
        gate = make(n, width)
        yield "low-rank gate", [(launch_low_rank_gate(card, low, n, C.low_rank, C.n_streams),)] * sets
        yield "mix", [(launch_mix(card, C, normed, gate, n, mixed, coded.coded),)] * sets
    yield "fused read", [(launch_read_mix(card, C, "BF16", low, up, C.low_rank, normed, n, mixed, coded.coded),) for up in ups], 2 * width * C.low_rank


def delta_net(card, n: int) -> Iterator[tuple[str, Callable]]:
    from strata.cuda.delta_net.chunk_scan import launch_any_scan
    from strata.cuda.delta_net.gdn import launch_prepare
    from strata.cuda.delta_net.scan import launch_commit

    w, heads, size, n_slots = window(n), C.n_ssm_v_heads, C.ssm_state, min(n, 8)
    sets = 12 if n <= 8 else 2
    make = lambda *shape: flat(card, normal(2, *shape) * np.float32(0.1))  # noqa: E731
    tables = tables_of(card, w, spare=0)
    u, alpha, beta, tail, conv = make(n, C.ssm_channels), make(n, heads), make(n, heads), make(n_slots, 3, C.ssm_channels), make(C.ssm_channels, 4)
    bias, decay, out_w, g, b = make(heads), make(heads), make(n, C.ssm_channels), make(n, heads), make(n, heads)
    memory = card.zeros("memory", sets * n_slots * heads * size * size, np.float32)
    one = n_slots * heads * size * size
    o, z, weight, gated, coded = make(n, C.ssm_inner), make(n, C.ssm_inner), make(size), make(n, C.ssm_inner), CodedOutput(card, n, C.ssm_inner)
    yield "prepare", [(launch_prepare(card, C, tables, u, alpha, beta, tail, conv, bias, decay, out_w, g, b),)] * sets
    yield "scan (+ gate)", [
        launch_any_scan(card, C, tables, True, out_w, g, b, u, memory[s * one : (s + 1) * one], tail, n_slots, 0.1, o, z, weight, gated, coded.coded)
        for s in range(sets)
    ], 2 * 4 * one
    if n <= 8:
        layers = sets
        stacked = [make(layers * n, C.ssm_channels), make(layers * n, heads), make(layers * n, heads), make(layers * n, C.ssm_channels)]
        tails = make(layers, n_slots, 3, C.ssm_channels)
        kept = flat(card, np.ones(len(w.segments), np.int32))
        yield f"replay of {layers} layers", [(launch_commit(card, C, tables, kept, *stacked, memory, tails, n_slots, layers, n),)] * 3


def attention(card, n: int) -> Iterator[tuple[str, Callable]]:
    from strata.cuda.attention.heads import IndexerInputs, launch_heads
    from strata.cuda.attention.indexer import launch_scores
    from strata.cuda.attention.selection import launch_selection
    from strata.cuda.attention.split_attention import AttentionOutput, SplitScratch, launch_attention
    from strata.numerics.rotary import rotary_table
    from tests.gpu.checks_attention import Cells

    n_cells, sets = 8192, 8 if n <= 8 else 1
    w, width = window(n, 6000 if n <= 8 else 4096), C.selection_width
    tables, cells = tables_of(card, w, spare=0), Cells(C, "f16", "f16", min(n, 8), n_cells)
    for name in ("k_codes", "v_codes", "raw"):
        getattr(cells, name)[:] = 0x3800
    cells.pooled[:] = np.abs(normal(3, *cells.pooled.shape))
    make = lambda *shape: flat(card, normal(3, *shape))  # noqa: E731
    placed, table = cells.on_card(card), flat(card, rotary_table(1e7, C.rope_dims, n_cells))
    projected, k, v, queries = make(n, C.q_gate_width), make(n, C.kv_width), make(n, C.kv_width), make(n, C.attention_width)
    indexer = IndexerInputs(make(n, C.indexer_width), make(n, C.indexer_dim), make(C.indexer_dim), make(C.indexer_dim), make(n, C.indexer_width))
    yield "heads", [(launch_heads(card, C, tables, "f16", "f16", projected, k, v, make(256), make(256), table, queries, placed, indexer),)] * sets
    most = n_cells // C.indexer_block
    scores, chosen, counts = make(n, most), flat(card, np.zeros((n, width), np.int32)), flat(card, np.zeros(n, np.int32))
    yield "scores of 8192 cells", [(launch_scores(card, C, tables, indexer.queries, placed.pooled, placed.n_blocks, most, scores),)] * sets
    yield "selection", [(launch_selection(card, C, tables, scores, most, chosen, counts),)] * sets
    pairs = 33 * min(n, 32)
    scratch = SplitScratch(pairs, *(card.zeros("triples", m * C.n_q_heads, np.float32) for m in (pairs, pairs, pairs * C.head_dim)))
    output = AttentionOutput(projected, make(n, C.attention_width), make(n, C.attention_width), CodedOutput(card, n, C.attention_width).coded)
    yield "attention", [launch_attention(card, C, tables, "f16", width, queries, placed, chosen, counts, width, 0.06, scratch, output)] * sets
    if n > 8:
        whole = tables_of(card, window(n, 0), spare=0)
        yield "selection of all cells", [(launch_selection(card, C, whole, scores, most, chosen, counts),)] * sets
        yield "attention to all cells", [launch_attention(card, C, whole, "f16", width, queries, placed, chosen, counts, width, 0.06, scratch, output)] * sets


def experts(card, n: int) -> Iterator[tuple[str, Callable]]:
    from strata.cuda.experts.activation import launch_activation
    from strata.cuda.experts.routing import launch_route_and_group
    from strata.cuda.packed.products import make_lists

    entries, sets = n * C.n_used, SETS if n <= 8 else 4
    make = lambda *shape: flat(card, normal(4, *shape))  # noqa: E731
    lists = make_lists(card, "lists", min(C.n_experts, entries), entries)
    ids, entry_of, first, count = (card.zeros("lists", m, np.int32) for m in (entries, entries, C.n_experts, C.n_experts))
    yield "route+group", [launch_route_and_group(card, C, make(n, C.n_experts), n, ids, make(n, C.n_used), lists, entry_of, first, count)] * sets
    gate, coded = make(entries, C.expert_ff), CodedOutput(card, entries, C.expert_ff)
    yield "activation", [(launch_activation(card, gate, make(entries, C.expert_ff), entries, C.expert_ff, gate, coded.coded),)] * sets


def bytes_of_a_row() -> dict[str, int]:
    """Bytes that an operation must read and write for one row of a chunk, where that is what bounds it."""
    width, hidden, entries = 4 * C.residual_width, 4 * C.hidden, C.n_used
    codes = lambda n: n * 2 + n // 4  # noqa: E731
    return {
        "write+norm": 3 * width + hidden, "combine+write+norm": 3 * width + (entries + 1) * hidden,
        "low-rank gate": 8 * C.low_rank, "mix": 2 * width + hidden + codes(C.hidden), "fused read": width + 4 * C.low_rank + hidden + codes(C.hidden),
        "prepare": 8 * C.ssm_channels, "scan (+ gate)": 4 * C.ssm_channels + 16 * C.ssm_inner + codes(C.ssm_inner),
        "activation": entries * (12 * C.expert_ff + codes(C.expert_ff)), "route+group": 4 * C.n_experts,
    }


def measured(card, n: int, room: Callable) -> Iterator[tuple[str, dict]]:
    """Yield the figures of a room's cases, microseconds, and give their memory back."""
    for name, sets, *n_bytes in room(card, n):
        figures = {"alone": round(time_us(card, sets), 2)}
        if n <= 8:
            for launch in [launch for one in sets for launch in one][1:]:
                launch.follow()
            figures["early"] = round(time_us(card, sets), 2)
        if n > 8:
            n_bytes = [n * bytes_of_a_row()[name]] if name in bytes_of_a_row() else []
        if n_bytes:
            figures["floor"] = round(n_bytes[0] / COPY_GB_PER_S / 1000, 2)
        yield name, figures
    for purpose in list(card.taken):
        card.give_back(purpose)


def main() -> None:
    from strata.cuda.card.device import CudaDevice

    card, table = CudaDevice(0), {}
    counts = tuple(int(word) for word in sys.argv[2:]) or (1, 8, 512, 2048)
    columns = [(n, kind) for n in counts for kind in (("alone", "early", "floor") if n <= 8 else ("alone", "floor"))]
    print(f"{'us':34s}" + "".join(f"{n:>7d} {kind:5s}" for n, kind in columns))
    for room in (streams, products, half_layers, delta_net, attention, experts):
        rows: dict = {}
        for n in counts:
            for name, figures in measured(card, n, room):
                rows.setdefault(name, {}).update({(n, kind): us for kind, us in figures.items()})
        for name, row in rows.items():
            print(f"{name:34s}" + "".join(f"{row.get(column, '-'):>13}" for column in columns), flush=True)
            table[name] = {f"{n} rows {kind}": us for (n, kind), us in row.items()}
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w") as file:
            json.dump({"device": card.card.name, "microseconds": table}, file, indent=1)


if __name__ == "__main__":
    main()
