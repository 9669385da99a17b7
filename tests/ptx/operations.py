"""The operations' kernels beside the products, for the catalogue: real geometry where resources matter, the fixture's elsewhere.

Does not know: how they are compiled.
"""

from collections.abc import Iterator

from tests.gpu.geometry import REAL, SMALL
from tests.ptx.catalogue import Entry

WORDS = {"i8": "int8", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u64": "uint64", "f32": "float32"}
SCALARS = {"I": "int32", "L": "int64", "F": "float32"}
CODED = "i8 i8 f32 i32"


def signature(text: str) -> tuple:
    """Return the types of a signature: array elements by name, I L F for numbers, 3*f32 for three of a kind."""
    from numba.cuda import types

    found = []
    for word in text.split():
        times, _, name = word.rpartition("*")
        kind = getattr(types, SCALARS[name]) if name in SCALARS else types.Array(getattr(types, WORDS[name]), 1, "C")
        found += [kind] * int(times or 1)
    return tuple(found)


def _entry(name, build, text, most=128, representative=True) -> Entry:
    return Entry(name, build, signature(text), most, representative)


def streams() -> Iterator[Entry]:
    from strata.cuda.drafting import drafts
    from strata.cuda.experts import activation, combine
    from strata.cuda.residual import read_mix
    from strata.cuda.residual import streams as s

    hidden, n_streams, n_used = REAL.hidden, REAL.n_streams, REAL.n_used
    yield _entry("norm of chosen rows", lambda t: s.stream_kernel(hidden, n_streams, s.NO_BLOCK, 1, True, True, False, t), "7*f32 i32 f32 F f32", 64)
    yield _entry("norm", lambda t: s.stream_kernel(hidden, 1, s.NO_BLOCK, 1, True, False, False, t), "9*f32 F f32", 64)
    yield _entry("norm of whole rows", lambda t: s.stream_kernel(hidden * n_streams, 1, s.NO_BLOCK, 1, True, True, False, t), "7*f32 i32 f32 F f32", 96)
    yield _entry("write and norm", lambda t: s.stream_kernel(hidden, n_streams, s.PLAIN, 1, True, False, False, t), "9*f32 F f32", 64)
    for is_known in (False, True):
        build = lambda t, k=is_known: s.stream_kernel(hidden, n_streams, s.EXPERTS, n_used, True, False, k, t)  # noqa: E731
        yield _entry(f"combine, write and norm{', known early' if is_known else ''}", build, "3*f32 i32 5*f32 F f32", 128)
    yield _entry("low-rank gate", s.low_rank_gate_kernel, "f32 I F", 64)
    yield _entry("mix", lambda t: s.mix_kernel(hidden, n_streams, t), f"3*f32 {CODED}", 64)
    yield _entry("combine", lambda t: combine.combine_kernel(hidden, n_used, t), "f32 i32 4*f32", 96)
    yield _entry("activation", activation.activation_kernel, f"f32 f32 L f32 {CODED}", 64)
    yield _entry("draft streams", drafts.add_kernel, "f32 f32 I I L", 64)
    yield _entry("draft pick", drafts.pick_kernel, "f32 I i32 f32", 64)
    for name in ("BF16", "F16", "F32"):
        for config, label in ((REAL, "real"), (SMALL, "small")):
            for n_rows in (1, 2, 4, 8):
                shape = read_mix.ReadShape(config.hidden, config.n_streams, config.low_rank, name, n_rows, name != "F32" or config is SMALL)
                build = lambda t, s=shape: read_mix.read_mix_kernel(s, t)  # noqa: E731
                representative = name == "BF16" and config is REAL and n_rows in (1, 8)
                yield _entry(f"fused read {name} {label} {n_rows}", build, f"f32 u8 f32 I f32 {CODED}", 128, representative)


def delta_net() -> Iterator[Entry]:
    from strata.cuda.delta_net import chunk_prepare, gdn
    from strata.cuda.delta_net.chunk_scan import ChunkScanShape, chunk_scan_kernel
    from strata.cuda.delta_net.scan import ScanShape, scan_kernel
    from strata.cuda.delta_net.window_scan import WindowShape, window_scan_kernel

    def most_heads(target) -> int:
        """Heads that a multiprocessor may hold: three by bulk copies, one before 9.0."""
        return 3 if target.bulk_copies else 2 if target.dependent_launch else 1

    for config, label in ((REAL, "real"), (SMALL, "small")):
        heads = (config.ssm_state, config.n_ssm_qk_heads, config.n_ssm_v_heads, config.conv_taps)
        real = config is REAL
        for n_run in (1, chunk_prepare.RUN):
            build = lambda t, h=heads, n=n_run: chunk_prepare.prepare_kernel(*h, n, t)  # noqa: E731
            yield _entry(f"prepare {n_run} {label}", build, "7*f32 F 3*i32 I 3*f32", 96, real)
        for name, keep, at_once in (("kept", True, 1), ("kept, 2", True, 2), ("kept, 3", True, 3), ("to be committed", False, 2)):
            build = lambda t, h=heads, k=keep, n=at_once: window_scan_kernel(WindowShape(*h, k, min(n, most_heads(t))), t)  # noqa: E731
            yield _entry(f"window scan {name} {label}", build, f"8*f32 3*i32 F F f32 f32 i32 4*f32 {CODED}", 255, real)
        yield _entry(f"gate and norm {label}", lambda t, c=config: gdn.gate_norm_kernel(c.ssm_state, t), f"3*f32 F I f32 {CODED}", 64, real)
        for n_held, most in ((1, 168), (config.n_ssm_v_heads // config.n_ssm_qk_heads, 255)):
            build = lambda t, h=heads, n=n_held: chunk_scan_kernel(ChunkScanShape(*h, True, n), t)  # noqa: E731
            yield _entry(f"scan of a prompt {n_held} {label}", build, "6*f32 2*i32 i32 F f32", most, real)
        for name, variant, tail in (
            ("scan of a window", (1, True, True, True), f"f32 {CODED}"),
            ("scan of a verify window", (1, False, True, True), f"f32 {CODED}"),
            ("replay", (1, True, False, False), "5*f32"),
        ):
            build = lambda t, h=heads, v=variant: scan_kernel(ScanShape(*h, *v), t)  # noqa: E731
            yield _entry(f"{name} {label}", build, f"6*f32 3*i32 3*I F 3*f32 F {tail}", 255, real and name != "scan of a verify window")


def attention() -> Iterator[Entry]:
    from strata.cuda.attention import split_attention as a
    from strata.cuda.attention import heads, indexer, merging, narrow_selection, selection
    from strata.cuda.attention.tiled_attention import TileShape, tile_kernel
    from strata.cuda.attention.window_attention import FEW_HEADS, MANY_HEADS, StagedShape, staged_kernel

    kinds = {"f16": "u16", "int8": "i8", "f32": "f32"}
    for config, label in ((REAL, "real"), (SMALL, "small")):
        c, real = config, config is REAL
        for kv, raw in (("f16", "f16"), ("int8", "f16"), ("f32", "f32")):
            shape = heads.HeadShape(c.n_q_heads, c.n_kv_heads, c.head_dim, c.n_indexer_heads, c.indexer_dim, c.rope_dims // 2, c.indexer_block, kv, raw)
            text = f"9*f32 F f32 4*i32 2*I f32 {kinds[kv]} u16 {kinds[kv]} u16 f32 {kinds[raw]} f32"
            yield _entry(f"heads {kv} {label}", lambda t, s=shape: heads.heads_kernel(s, t), text, 96, kv == "f16")
            for looped in (False, True):
                split = a.AttentionShape(c.n_q_heads, c.n_kv_heads, c.head_dim, kv, False, looped)
                text = f"f32 {kinds[kv]} u16 {kinds[kv]} u16 4*i32 I I F I 6*f32 {CODED}"
                name = f"attention {kv} {'looped' if looped else 'side by side'} {label}"
                yield _entry(name, lambda t, s=split: a.attention_kernel(s, t), text, 168, real and kv == "f16")
            if kv != "f32":
                for dense in (False, True):
                    tile = TileShape(c.n_q_heads, c.n_kv_heads, c.head_dim, kv, dense)
                    text = f"f32 {kinds[kv]} u16 {kinds[kv]} u16 4*i32 I I F I 3*f32 {CODED}"
                    name = f"attention {kv} tiled {'dense' if dense else 'chosen'} {label}"
                    yield _entry(name, lambda t, s=tile: tile_kernel(s, t), text, 255, real and kv == "f16" and not dense)
                    split = a.AttentionShape(c.n_q_heads, c.n_kv_heads, c.head_dim, kv, dense, True)
                    text = f"f32 {kinds[kv]} u16 {kinds[kv]} u16 4*i32 I I F I 6*f32 {CODED}"
                    name = f"attention {kv} beside tiles {'dense' if dense else 'chosen'} {label}"
                    yield _entry(name, lambda t, s=split: a.attention_kernel(s, t, True), text, 168, False)
                    for most_heads in (FEW_HEADS, MANY_HEADS):
                        staged = StagedShape(c.n_q_heads, c.n_kv_heads, c.head_dim, kv, dense, most_heads)
                        text = f"f32 {kinds[kv]} u16 {kinds[kv]} u16 4*i32 I I F I 3*f32"
                        name = f"attention {kv} staged {most_heads} {'dense' if dense else 'chosen'} {label}"
                        yield _entry(name, lambda t, s=staged: staged_kernel(s, t), text, 120, real and kv == "f16" and not dense)
        yield _entry(f"merge {label}", lambda t, s=split: merging.merge_kernel(s, t), f"3*f32 i32 i32 I 3*f32 {CODED}", 128, real)
        geometry = (c.n_indexer_heads, c.indexer_dim, c.indexer_block, c.selection_width)
        for passes in (indexer.WINDOW_PASSES, indexer.PASSES):
            build = lambda t, g=geometry, p=passes: indexer.scores_kernel(*g, p, t)  # noqa: E731
            yield _entry(f"block scores {passes} passes {label}", build, "2*f32 2*i32 2*I f32", 128, real)
        build = lambda t, c=c: selection.selection_kernel(c.indexer_block, c.selection_width, t)  # noqa: E731
        yield _entry(f"selection {label}", build, "f32 i32 I i32 i32", 96, real)
        for cut in narrow_selection.CUTS:
            build = lambda t, c=c, n=cut: narrow_selection.narrow_kernel(c.indexer_block, c.selection_width, *n, t)  # noqa: E731
            yield _entry(f"narrow selection {cut[0]} x {cut[1]} {label}", build, "f32 i32 I i32 i32", 64 if cut[0] > 512 else 96, real and cut in ((1024, 1), (1024, 4)))


def draft_layer() -> Iterator[Entry]:
    from strata.cuda.attention import heads
    from strata.cuda.drafting import draft_cells

    yield _entry("draft places", draft_cells.note_kernel, "i32 I 3*i32 I", 64)
    yield _entry("draft list", draft_cells.list_kernel, "i32 I 3*i32 I i32", 64)
    yield _entry("draft streams moved", draft_cells.move_kernel, "f32 i32 f32 i32 I", 64)
    for c, label in ((REAL, "real"), (SMALL, "small")):
        for kv, kind in (("f16", "u16"), ("int8", "i8")):
            for n_q, what in ((c.n_q_heads, "heads without indexer"), (0, "cells alone")):
                shape = heads.HeadShape(n_q, c.n_kv_heads, c.head_dim, 0, c.indexer_dim, c.rope_dims // 2, c.indexer_block, kv, "f16")
                text = f"9*f32 F f32 4*i32 2*I f32 {kind} u16 {kind} u16 3*f32"
                yield _entry(f"{what} {kv} {label}", lambda t, s=shape: heads.heads_kernel(s, t), text, 96, kv == "f16" and c is REAL)


def small_operations() -> Iterator[Entry]:
    from strata.cuda.experts import chunk_grouping, routing
    from strata.cuda.residual import lookup, ngrams

    c = REAL
    yield _entry("route", lambda t: routing.route_kernel(c.n_experts, c.n_used, t), "f32 I i32 f32", 96)
    for n_rows in (1, 8):
        build = lambda t, n=n_rows: routing.together_kernel(c.n_experts, c.n_used, n, t)  # noqa: E731
        yield _entry(f"route and group {n_rows} rows", build, "f32 i32 f32 5*i32 I", 128, n_rows == 8)
    yield _entry("first entries", chunk_grouping.first_kernel, "i32 2*I 2*i32", 64)
    yield _entry("placed entries", lambda t: chunk_grouping.place_kernel(c.n_used, t), "i32 2*I 7*i32 I", 64)
    yield _entry("lookup of tokens", lambda t: lookup.lookup_kernel("Q4_K", 1, t), "u8 L i32 I f32", 64)
    for name in ("Q4_K", "IQ3_S", "Q2_0", "IQ4_NL", "Q5_1", "BF16"):
        yield _entry(f"lookup {name}", lambda t, n=name: lookup.lookup_kernel(n, 4, t), "u8 L i32 I f32", 64, name == "Q4_K")
    yield _entry("n-gram hash", lambda t: ngrams.hash_kernel(c.n_ple_heads, c.ple_heads_per_ngram, t), "i32 I 4*i32 I 3*u64 i64", 64)
    yield _entry("n-gram gate", lambda t: ngrams.gate_kernel(c.hidden, c.n_streams, t), "6*f32 F F 2*f32", 64)
    yield _entry("n-gram convolution", lambda t: ngrams.convolve_kernel(c.residual_width, 4, 3, t), "5*f32 3*i32", 64)
    yield _entry("n-gram tail", lambda t: ngrams.keep_kernel(c.residual_width, 9, t), "f32 i32 f32 4*i32", 64)


def expert_tier() -> Iterator[Entry]:
    from strata.cuda.tier import dispatching, fetching, meeting_kernels, routing_log

    text = "2*I 5*i32 i32 i64 i32 2*I 5*i32 I 3*i32 5*i32 2*f32 I"
    for c, label in ((REAL, "real"), (SMALL, "small")):
        for n_threads in (dispatching.THREADS, dispatching.CHUNK_THREADS):
            build = lambda t, c=c, n=n_threads: dispatching.dispatch_kernel(c.n_experts, c.n_used, n, t)  # noqa: E731
            yield _entry(f"dispatch {n_threads} threads {label}", build, text, 80, True)
    yield _entry("fetch", fetching.fetch_kernel, "L 2*i32 i64 u8 2*L 3*I", 64)
    yield _entry("routing log", routing_log.log_kernel, "L I 2*i32", 32)
    yield _entry("meet", meeting_kernels.meet_kernel, "I 3*i32 L 2*f32 I", 64)


ROOMS = (streams, delta_net, attention, draft_layer, small_operations, expert_tier)


def entries() -> Iterator[Entry]:
    """Yield every kernel of the operations."""
    for room in ROOMS:
        yield from room()
