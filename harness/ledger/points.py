"""The dataflow table: every point that executors show, in the order in which a row's values come about.

A point is an operation's result, or state at the moment when it is read (`.read`) or just after it was written (`.stored`).
Within a layer the table's order is an order of dataflow: what a point is made from stands above it, or belongs to an
earlier row.  Levels: 0 logits, 1 one residual per layer, 2 everything.  Does not know: records, executors.

Inputs, separated by blanks:

    name       that point of the same row and layer
    name<n     that point of the up to n rows before, in the same conversation
    name<*     that point of all rows before
    =name      the very same bits: a copy, state that must lie as it was left; its part's age says how many rows before
    residual   the residual as the row last had it
    tokens     the row's token
"""

from dataclasses import dataclass

from strata.split.stages import RECEIVED

TOP = -1
"""The layer of what lies outside the layers."""
TOKENS = "tokens"
BEFORE, INSIDE, BEHIND = "before", "layer", "behind"


@dataclass(frozen=True, slots=True)
class Point:
    """One point: its name in plain words, the file and function that computes it, its inputs, where it stands."""

    name: str
    words: str
    source: str
    inputs: tuple[str, ...] = ()
    level: int = 2
    where: str = INSIDE

    @property
    def same_as(self) -> str:
        """The point of which this is an unchanged copy; empty where it is computed."""
        return next((given[1:] for given in self.inputs if given.startswith("=")), "")

    @property
    def is_state(self) -> bool:
        """Whether it shows state of the session."""
        return self.name.endswith((".read", ".stored"))

    @property
    def is_read(self) -> bool:
        """Whether it shows what an operation receives, not what one gives."""
        return self.name.endswith(".read") or self.name == RECEIVED

    @property
    def looks_back(self) -> bool:
        """Whether it depends on earlier rows, or on state that they left."""
        return self.is_state or any("<" in given or given.endswith(".read") for given in self.inputs)


def _streams(name: str, words: str, where: str = INSIDE) -> tuple[Point, ...]:
    """The read of the residual streams before a block."""
    file = "strata/host/streams.py"
    parts = [
        Point(f"{name}.normed", f"{words}: streams' norms", f"{file}: normalise", ("residual",), where=where),
        Point(f"{name}.low", f"{words}: low-rank product down and its gate", f"{file}: low_rank_gate", (f"{name}.normed",), where=where),
        Point(f"{name}.gate", f"{words}: low-rank product up", "strata/host/blocks.py: read_streams", (f"{name}.low",), where=where),
        Point(f"{name}.mixed", f"{words}: mix of the streams", f"{file}: mix", (f"{name}.normed", f"{name}.gate"), where=where),
    ]
    if where == INSIDE:
        parts.append(Point(f"{name}.inject", f"{words}: inject product", "strata/host/blocks.py: read_streams", (f"{name}.normed",)))
    return tuple(parts)


def _coded(name: str, words: str, of: str, where: str = INSIDE) -> tuple[Point, ...]:
    """Activations as products with quantised weights take them."""
    file = "strata/host/coding.py: encode"
    return (
        Point(f"{name}.codes", f"{words}: int8 codes of the activations", file, (of,), where=where),
        Point(f"{name}.scales", f"{words}: scales of the activations", file, (of,), where=where),
    )


def _products(source: str, of: str, *named: tuple[str, str]) -> tuple[Point, ...]:
    return tuple(Point(name, words, source, (f"{of}.codes", f"{of}.scales")) for name, words in named)


EMBED = (
    Point(TOKENS, "the tokens themselves", "strata/rows.py: Window", where=BEFORE),
    Point("embed", "token embedding", "strata/host/executor.py: embed", (TOKENS,), 1, BEFORE),
)
HAND_OFF = (Point(RECEIVED, "hand-off: the residual as the stage received it", "strata/split/stages.py: HandOff", ("=residual",), 1),)
NGRAM = (
    Point("ngram.history.read", "n-gram layer: token history as it was read", "strata/host/state.py: NgramState", (f"={TOKENS}",)),
    Point("ngram.rows", "n-gram layer: rows of the table", "strata/host/ngrams.py: table_rows", (TOKENS, "tokens<2", "ngram.history.read")),
    Point("ngram.embedding", "n-gram layer: table look-up", "strata/host/executor.py: ngram", ("ngram.rows",)),
    *_coded("ngram", "n-gram layer", "ngram.embedding"),
    *_products("strata/host/executor.py: ngram", "ngram", ("ngram.key", "n-gram layer: key product"), ("ngram.value", "n-gram layer: value product")),
    Point("ngram.gate", "n-gram layer: gated values", "strata/host/ngrams.py: gate_values", ("residual", "ngram.key", "ngram.value")),
    Point("ngram.normed", "n-gram layer: norms before the convolution", "strata/host/ngrams.py: gate_values", ("ngram.gate",)),
    Point("ngram.tail.read", "n-gram layer: the convolution's tail as it was read", "strata/host/state.py: NgramState", ("=ngram.normed",)),
    Point(
        "ngram.residual", "n-gram layer: convolution, added to the residual", "strata/host/ngrams.py: convolve_add",
        ("residual", "ngram.gate", "ngram.normed", "ngram.normed<9", "ngram.tail.read"),
    ),
    Point("ngram.tail.stored", "n-gram layer: the convolution's tail as it was stored", "strata/host/gdn.py: keep_tail", ("=ngram.normed",)),
    Point("ngram.history.stored", "n-gram layer: token history as it was stored", "strata/host/ngrams.py: keep_history", (f"={TOKENS}",)),
)
GDN = (
    *_coded("gdn", "gated delta net", "attention.mixed"),
    *_products("strata/host/executor.py: gdn", "gdn", ("gdn.qkv", "gated delta net: q, k, v product"), ("gdn.z", "gated delta net: gate product")),
    Point("gdn.g", "gated delta net: decay", "strata/host/gdn.py: gates", ("attention.mixed",)),
    Point("gdn.beta", "gated delta net: beta", "strata/host/gdn.py: gates", ("attention.mixed",)),
    Point("gdn.tail.read", "gated delta net: the convolution's tail as it was read", "strata/host/state.py: GdnState", ("=gdn.qkv",)),
    Point(
        "gdn.conv", "gated delta net: convolution and norms of q and k", "strata/host/gdn.py: convolve, normalise_heads",
        ("gdn.qkv", "gdn.qkv<3", "gdn.tail.read"),
    ),
    Point("gdn.memory.read", "gated delta net: recurrent memory as it was read", "strata/host/state.py: GdnState", ("=gdn.memory.after",)),
    Point(
        "gdn.memory.after", "gated delta net: recurrent memory after the row", "strata/host/gdn.py: scan",
        ("gdn.conv", "gdn.g", "gdn.beta", "gdn.memory.after<1", "gdn.memory.read"),
    ),
    Point("gdn.scan", "gated delta net: recurrent scan", "strata/host/gdn.py: scan", ("gdn.conv", "gdn.memory.after")),
    Point("gdn.memory.stored", "gated delta net: recurrent memory as it was stored", "strata/host/gdn.py: scan, commit", ("=gdn.memory.after",)),
    Point("gdn.tail.stored", "gated delta net: the convolution's tail as it was stored", "strata/host/gdn.py: keep_tail", ("=gdn.qkv",)),
    Point("gdn.gated", "gated delta net: norm and gate of the heads", "strata/host/gdn.py: gate_norm", ("gdn.scan", "gdn.z")),
    *_coded("gdn.gated", "gated delta net, output", "gdn.gated"),
    *_products("strata/host/executor.py: gdn", "gdn.gated", ("gdn.output", "gated delta net: output product")),
)
CELLS = tuple((name, words) for name, words in (("k", "keys"), ("v", "values")))
QSA = (
    *_coded("qsa", "sparse attention", "attention.mixed"),
    *_products(
        "strata/host/executor.py: qsa", "qsa", ("qsa.q", "sparse attention: query and gate product"),
        ("qsa.k", "sparse attention: key product"), ("qsa.v", "sparse attention: value product"),
    ),
    Point("qsa.queries", "sparse attention: norm and rotation of the queries", "strata/host/attention.py: finish_heads", ("qsa.q",)),
    Point("qsa.keys", "sparse attention: norm and rotation of the keys", "strata/host/attention.py: finish_heads", ("qsa.k",)),
    *(
        Point(f"qsa.{name}_{kind}.stored", f"sparse attention: {kind} of the {words}' cells as they were stored", "strata/host/attention.py: store_cells", (of,))
        for (name, words), of in zip(CELLS, ("qsa.keys", "qsa.v"), strict=True) for kind in ("codes", "scales")
    ),
    Point("indexer.k", "indexer: raw key product", "strata/host/executor.py: qsa", ("attention.mixed",)),
    Point("indexer.raw.stored", "indexer: raw key's cell as it was stored", "strata/host/attention.py: store_cells", ("indexer.k",)),
    Point(
        "indexer.raw.read", "indexer: raw keys' cells of a block as they were read", "strata/host/state.py: QsaState",
        ("indexer.raw.stored", "indexer.raw.stored<*"),
    ),
    Point("indexer.pooled.stored", "indexer: pooled key of a block as it was stored", "strata/host/indexer.py: pool_blocks", ("indexer.raw.read",)),
    Point("indexer.q", "indexer: queries", "strata/host/executor.py: qsa", ("attention.mixed",)),
    Point(
        "indexer.pooled.read", "indexer: pooled keys as they were read", "strata/host/state.py: QsaState",
        ("indexer.pooled.stored", "indexer.pooled.stored<*"),
    ),
    Point("indexer.scores", "indexer: scores of the blocks", "strata/host/indexer.py: score_blocks", ("indexer.q", "indexer.pooled.read")),
    Point("indexer.cells", "indexer: choice of cells", "strata/host/indexer.py: choose_cells", ("indexer.scores",)),
    *(
        Point(
            f"qsa.{name}_{kind}.read", f"sparse attention: {kind} of the {words}' cells as they were read", "strata/host/state.py: QsaState",
            ("indexer.cells", f"qsa.{name}_{kind}.stored", f"qsa.{name}_{kind}.stored<*"),
        )
        for name, words in CELLS for kind in ("codes", "scales")
    ),
    Point(
        "qsa.attended", "sparse attention: attention over the chosen cells", "strata/host/attention.py: attend",
        ("qsa.queries", "indexer.cells", "qsa.k_codes.read", "qsa.k_scales.read", "qsa.v_codes.read", "qsa.v_scales.read"),
    ),
    Point("qsa.gated", "sparse attention: output gate", "strata/host/attention.py: gate", ("qsa.attended", "qsa.q")),
    *_coded("qsa.gated", "sparse attention, output", "qsa.gated"),
    *_products("strata/host/executor.py: qsa", "qsa.gated", ("qsa.output", "sparse attention: output product")),
)
EXPERTS = (
    *_coded("moe", "experts", "moe.mixed"),
    Point("moe.router", "router: product", "strata/host/blocks.py: mix_experts", ("moe.mixed",)),
    Point("moe.ids", "router: choice of experts", "strata/host/experts.py: route", ("moe.router",)),
    Point("moe.weights", "router: weights of the chosen experts", "strata/host/experts.py: route", ("moe.router", "moe.ids")),
    Point("moe.hidden", "expert: gate and up products with activation", "strata/host/experts.py: activate", ("moe.codes", "moe.scales", "moe.ids")),
    *_coded("moe.hidden", "expert", "moe.hidden"),
    Point("moe.experts", "expert: down product", "strata/host/blocks.py: mix_experts", ("moe.hidden.codes", "moe.hidden.scales")),
    Point("moe.shared.hidden", "shared expert: gate and up products with activation", "strata/host/experts.py: activate", ("moe.codes", "moe.scales")),
    *_coded("moe.shared.hidden", "shared expert", "moe.shared.hidden"),
    *_products("strata/host/blocks.py: mix_experts", "moe.shared.hidden", ("moe.shared", "shared expert: down product")),
    Point("moe.shared.gate", "shared expert: gate product", "strata/host/blocks.py: mix_experts", ("moe.mixed",)),
    Point(
        "moe.output", "experts: combination", "strata/host/experts.py: combine",
        ("moe.weights", "moe.experts", "moe.shared", "moe.shared.gate"),
    ),
)
ADD = "strata/host/streams.py: write"
TABLE = (
    *EMBED, *HAND_OFF, *NGRAM,
    *_streams("attention", "read before attention"), *GDN, *QSA,
    Point("attention.residual", "attention's output, added to the residual", ADD, ("residual", "attention.inject", "gdn.output", "qsa.output")),
    *_streams("moe", "read before the experts"), *EXPERTS,
    Point("moe.residual", "experts' output, added to the residual", ADD, ("residual", "moe.inject", "moe.output"), 1),
    *_streams("head", "read before the head", BEHIND), *_coded("head", "head", "head.mixed", BEHIND),
    Point("logits", "head: output product", "strata/host/executor.py: head", ("head.codes", "head.scales"), 0, BEHIND),
)
POINTS: dict[str, Point] = {point.name: point for point in TABLE}
RANKS: dict[str, int] = {point.name: rank for rank, point in enumerate(TABLE)}
RESIDUALS = ("embed", "ngram.residual", "attention.residual", "moe.residual")


def point_named(name: str) -> Point:
    """Return a point; one that an executor shows and the table lacks stands last in its layer, by its own name."""
    return POINTS.get(name) or Point(name, name, "not in the table")


def points_of_level(level: int) -> frozenset[str]:
    """Return the names of the points that a ledger of a level records."""
    return frozenset(point.name for point in TABLE if point.level <= level)


def rank_of(name: str, layer: int) -> tuple[int, int]:
    """Return where a point stands among those of a row: (layer, place in it), layers' outside first or last."""
    where = point_named(name).where
    column = layer if where == INSIDE else (TOP if where == BEFORE else 1 << 15)
    return column, RANKS.get(name, len(RANKS))


def in_words(name: str, layer: int) -> str:
    """Return a point and its layer in plain words."""
    words = point_named(name).words
    return words if layer == TOP else f"{words}, layer {layer}"
