"""Speed of one conversation on an open engine: decoding, prompt reading, and the floor of decoding.

The floor is the encoded bytes that one token must read (`strata.model.describe`) over the bandwidth measured in the same
rounds.  It is a floor for weights that lie in memory; a small model that fits into a cache can beat it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from strata.batch.engine import Engine
from strata.batch.requests import Request
from strata.batch.validation import ROOM
from strata.bench.bandwidth import MemoryReader, buffer_bytes
from strata.bench.spread import Spread
from strata.errors import UsageError
from strata.model.describe import token_bytes
from strata.model.tokenizer import Tokenizer

N_PROMPT = 512
N_DECODED = 128
N_START = 32
"""Tokens of the prompt that is read, tokens that are decoded, tokens that decoding starts behind."""
PASSAGE = (
    "A harbour keeps two books. In one the pilots write what they saw, the ships, the weather and the depth of the water; in "
    "the other the clerks write what was paid. Every spring somebody lays them side by side, line by line, and asks where "
    "they differ first: def first_difference(left, right): return next(i for i, (a, b) in enumerate(zip(left, right)) if a != b)\n"
)


@dataclass(frozen=True, slots=True)
class HostSpeed:
    """Rates in tokens per second, bandwidth in bytes per second, over `n_rounds` rounds."""

    n_rounds: int
    n_prompt: int
    decode: Spread
    read: Spread
    bandwidth: Spread
    buffer_bytes: int
    token_bytes: int

    @property
    def floor_ms(self) -> float:
        """Milliseconds that reading one token's weights takes at the measured bandwidth."""
        return 1e3 * self.token_bytes / self.bandwidth.median


def measure(engine: Engine, tokenizer: Tokenizer, n_rounds: int, tell: Callable[[str], None]) -> HostSpeed:
    """Measure `n_rounds` rounds after one that is thrown away; `tell` hears what is going on."""
    device = engine.stages[0].executor.device
    if device.kind != "host":
        raise UsageError(f"devices={engine.settings.devices}", "this measures the CPU's threads", "use --devices host")
    n_most = engine.resolved.context - ROOM - 1
    n_prompt = min(N_PROMPT, n_most)
    if n_most < N_START + N_DECODED:
        raise UsageError(f"context={engine.resolved.context}", f"{N_START + N_DECODED + ROOM + 1} positions are needed", "use a larger --context")
    tokens = passage_of(tokenizer, n_prompt)
    reader = MemoryReader(device.team.control, buffer_bytes())
    rounds = []
    for number in range(n_rounds + 1):
        tell(f"round {number} of {n_rounds}" if number else "warming up (minutes the first time)")
        rounds.append((_decode_rate(engine, tokens[:N_START]), _read_rate(engine, tokens), reader.measure()))
    decode, read, bandwidth = (Spread.of(values) for values in zip(*rounds[1:], strict=True))
    return HostSpeed(
        n_rounds, n_prompt, decode, read, bandwidth, buffer_bytes(), token_bytes(engine.model.weights, engine.model.config)
    )


def passage_of(tokenizer: Tokenizer, n_tokens: int) -> tuple[int, ...]:
    """Return n_tokens token ids of ordinary text."""
    once = tokenizer.encode(PASSAGE)
    return tuple((once * (n_tokens // len(once) + 1))[:n_tokens])


def _decode_rate(engine: Engine, prompt: tuple[int, ...]) -> float:
    """Tokens per second after the first, which comes from the prompt's last row."""
    return N_DECODED / engine.generate([Request(prompt, N_DECODED + 1)]).decode_seconds


def _read_rate(engine: Engine, prompt: tuple[int, ...]) -> float:
    return len(prompt) / engine.generate([Request(prompt, 1)]).read_seconds
