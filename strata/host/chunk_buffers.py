"""The buffers of a prompt chunk: float32 rows by name, in memory that is given.

They hold what is as long as a chunk: the residual streams, their normed rows, the block input, the entries' gate, up and output
rows, and the experts' combined output.  A name is one array at a time: the blocks of a window come one after the other.
Small rows (router, heads, codes) are the process's own, on every path.  Does not know: where the memory comes from.
"""

import numpy as np

from strata.model.config import ModelConfig

FLOAT_BYTES = 4


class ChunkLayout:
    """Which buffers a device's chunks have; `row_bytes` of all of them together."""

    def __init__(self, config: ModelConfig, has_embedding: bool) -> None:
        streams, entries = config.n_streams * config.hidden, config.n_used
        self.widths = {
            **({"residual": streams} if has_embedding else {}),
            "normed": streams, "mixed": config.hidden, "gates": entries * config.expert_ff, "ups": entries * config.expert_ff,
            "outputs": entries * config.hidden, "combined": config.hidden,
        }
        self.row_bytes = FLOAT_BYTES * sum(self.widths.values())

    def bytes(self, rows: int) -> int:
        """Return the bytes of buffers for a chunk of rows."""
        return rows * self.row_bytes

    def buffers(self, rows: int, memory: np.ndarray) -> "ChunkBuffers":
        """Lay the buffers for chunks of up to `rows` rows over memory uint8 [bytes(rows) or more]."""
        return ChunkBuffers(self, rows, memory)


class ChunkBuffers:
    """Buffers for chunks of up to `rows` rows in memory uint8 [layout.bytes(rows) or more]."""

    def __init__(self, layout: ChunkLayout, rows: int, memory: np.ndarray) -> None:
        self.rows, self._of, at = rows, {}, 0
        for name, width in layout.widths.items():
            size = FLOAT_BYTES * rows * width
            self._of[name] = memory[at : at + size].view(np.float32)
            at += size

    def take(self, name: str, shape: tuple[int, ...]) -> np.ndarray | None:
        """Return the named buffer as float32 of a shape, its values undefined; None where there is no such buffer."""
        buffer = self._of.get(name)
        return None if buffer is None else buffer[: int(np.prod(shape))].reshape(shape)
