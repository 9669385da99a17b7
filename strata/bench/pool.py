"""Speed of the CPU pool's row kernels on expert rows that do not fit the caches, beside the bandwidth of the same rounds.

An expert's matrix has the real model's shape; there are so many that their packed bytes exceed every cache.  Measured are
all of them with one activation row each and with eight, and, for the bound, one small matrix again and again, which lies in
a cache.  A kernel is bound by memory where the bandwidth allows fewer weights per second than it reaches from a cache, by
the vector unit elsewhere.  On one thread, time is the thread's own processor time, so that other work on the machine
counts less; results go where memory has been written before, so that no page is made meanwhile.  Does not know: models, tiers.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from strata.bench.bandwidth import MemoryReader, buffer_bytes
from strata.bench.llama_rows import LlamaRows
from strata.bench.spread import Spread
from strata.cpu_pool.instruction_sets import PLAIN, instruction_set
from strata.cpu_pool.pages import buffer_words, encode_pages
from strata.cpu_pool.row_kernels import vector_product
from strata.cpu_pool.team import Team
from strata.errors import UsageError
from strata.formats.contract import GROUP, WeightFormat
from strata.formats.unpack import dequantise

N_IN, N_OUT, N_ROWS = 2560, 640, 8
CACHED_OUT, CACHED_TIMES = 64, 256
SAMPLE_BLOCKS = 4096
ORDINARY = (1e-5, 1e4)
"""Largest weights of a block that is taken: no infinities, no subnormal sums."""


@dataclass(frozen=True, slots=True)
class RowSpeed:
    """One format on a number of threads: seconds for all experts, over the rounds; bandwidth in bytes per second.

    `cached` is weights per second with one activation row, from a cache; `llama` the seconds of llama.cpp's kernels with one
    activation row, where its library is there and has the format.
    """

    format: str
    n_threads: int
    n_weights: int
    n_bytes: int
    bandwidth: Spread
    one_row: Spread
    eight_rows: Spread
    cached: Spread
    llama: Spread | None = None

    @property
    def llama_bytes_per_second(self) -> float | None:
        """What llama.cpp's kernels read of the same rows."""
        return None if self.llama is None else self.n_bytes / self.llama.median

    @property
    def bytes_per_second(self) -> float:
        return self.n_bytes / self.one_row.median

    @property
    def of_bandwidth(self) -> float:
        """Share of the measured bandwidth that one row reaches."""
        return self.bytes_per_second / self.bandwidth.median

    @property
    def weights_per_core(self) -> float:
        """Weights per second and thread, one row."""
        return self.n_weights / self.one_row.median / self.n_threads

    @property
    def eight_to_one(self) -> float:
        """Time of eight rows over the time of one."""
        return self.eight_rows.median / self.one_row.median

    @property
    def bound(self) -> str:
        """What sets the speed of one row: `memory` or `vector unit`."""
        from_memory = self.bandwidth.median * self.n_weights / self.n_bytes
        return "memory" if from_memory < self.cached.median else "vector unit"


def measure(
    forms: Sequence[WeightFormat], threads: Sequence[int], n_rounds: int, tell: Callable[[str], None], llama: LlamaRows | None = None
) -> list[RowSpeed]:
    """Measure every format on every number of threads, llama.cpp's kernels beside ours where given; `tell` hears what is going on.

    Raises UsageError where this process has no vector instructions for rows.
    """
    if instruction_set() == PLAIN:
        raise UsageError("bench pool", "this CPU has no AVX2, FMA and F16C", "there is nothing to measure: the plain loops are used")
    speeds = []
    for n_threads in threads:
        with Team(n_threads) as team:
            reader = MemoryReader(team.control, buffer_bytes())
            for form in forms:
                tell(f"{form.name} on {n_threads} threads")
                speeds.append(_measure(form, team, reader, n_rounds, llama))
    return speeds


def _measure(form: WeightFormat, team: Team, reader: MemoryReader, n_rounds: int, llama: LlamaRows | None) -> RowSpeed:
    clock = time.thread_time if team.n_threads == 1 else time.perf_counter
    bank = Bank(form, team.control, buffer_bytes() // 2)
    rounds = [
        (reader.measure(clock), bank.seconds(1, clock), bank.seconds(N_ROWS, clock), bank.cached_rate(clock), bank.llama_seconds(llama, clock))
        for _ in range(n_rounds + 1)
    ]
    *ours, theirs = zip(*rounds[1:], strict=True)
    bandwidth, one, eight, cached = map(Spread.of, ours)
    llama_one = None if theirs[0] is None else Spread.of(theirs)
    return RowSpeed(form.name, team.n_threads, bank.n_experts * N_OUT * bank.n_in, bank.raw.size, bandwidth, one, eight, cached, llama_one)


class Bank:
    """Experts' matrices of a format, at least `n_bytes` of them, and eight activation rows."""

    def __init__(self, form: WeightFormat, control: np.ndarray, n_bytes: int) -> None:
        self._form, self._control = form, control
        self.n_in = N_IN - N_IN % form.block_weights
        self._row_bytes = self.n_in // form.block_weights * form.block_bytes
        self.n_experts = -(-n_bytes // (N_OUT * self._row_bytes))
        self.raw = np.resize(ordinary_blocks(form), self.n_experts * N_OUT * self._row_bytes)
        self._kernel = vector_product(form.type_id, self.n_in // GROUP, instruction_set())
        x = np.random.default_rng(1).standard_normal((N_ROWS, self.n_in)).astype(np.float32)
        self._pages = np.empty(buffer_words(N_ROWS, self.n_in // GROUP), np.int32)
        encode_pages(control, x, np.full(N_ROWS, GROUP, np.int32), self._pages)
        self._first_row = x[0]

    def seconds(self, n_rows: int, clock: Callable[[], float]) -> float:
        """Multiply every expert with n_rows rows."""
        return self._run(np.arange(self.n_experts, dtype=np.int32), N_OUT, n_rows, clock)

    def llama_seconds(self, llama: LlamaRows | None, clock: Callable[[], float]) -> float | None:
        """Multiply every expert with one row by llama.cpp's kernels; None where it has none."""
        return None if llama is None else llama.seconds(self._form, self._control, self.raw, self.n_in, self._first_row, clock)

    def cached_rate(self, clock: Callable[[], float]) -> float:
        """Return weights per second of all threads with one row, where weights lie in a cache."""
        seconds = self._run(np.zeros(CACHED_TIMES, np.int32), CACHED_OUT, 1, clock)
        return CACHED_TIMES * CACHED_OUT * self.n_in / seconds

    def _run(self, experts: np.ndarray, n_out: int, n_rows: int, clock: Callable[[], float]) -> float:
        starts = np.arange(len(experts) + 1, dtype=np.int32) * np.int32(n_rows)
        entry_rows = np.tile(np.arange(n_rows, dtype=np.int32), len(experts))
        out = np.full((len(entry_rows), n_out), np.nan, np.float32)
        place = self.raw, N_OUT * self._row_bytes, self._row_bytes, self.n_in // GROUP
        started = clock()
        self._kernel(self._control, *place, experts, starts, entry_rows, self._pages, out)
        return clock() - started


def ordinary_blocks(form: WeightFormat) -> np.ndarray:
    """Return random stored blocks uint8 [n * block_bytes] with weights of ordinary size."""
    raw = np.random.default_rng(form.type_id).integers(0, 256, (SAMPLE_BLOCKS, form.block_bytes), dtype=np.uint8)
    with np.errstate(invalid="ignore"):
        largest = np.abs(dequantise(form, raw, SAMPLE_BLOCKS * form.block_weights)).reshape(SAMPLE_BLOCKS, -1).max(axis=1)
    return raw[(largest > ORDINARY[0]) & (largest < ORDINARY[1])].reshape(-1)
