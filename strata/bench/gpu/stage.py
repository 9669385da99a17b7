"""A synthetic model on a card: every matrix generated there from a seed, and cells that look filled.

Does not know: launches of the model, timing.
"""

import math

import numpy as np

from strata.bench.gpu.floors import banks_of
from strata.bench.gpu.patterns import pattern_of
from strata.bench.gpu.specs import Spec, Writer, specs_in
from strata.cuda.card.device import CudaDevice
from strata.cuda.card.generate import launch_fill
from strata.cuda.memory.placed import CardStage, Placer, place_stage
from strata.cuda.stage.sessions import Sessions
from strata.errors import DeviceError
from strata.model.config import ModelConfig
from strata.model.weights import Weights

SPARE_BYTES = 2 << 30
"""Room for buffers and loaded kernels."""
PATTERNS = "patterns of synthetic weights"


class Generator:
    """Fills arrays on a card; each call takes the next seed."""

    def __init__(self, device: CudaDevice, seed: int) -> None:
        self.device, self.seed = device, seed
        self._patterns: dict[str, tuple] = {}

    def fill(self, raw, type_name: str) -> None:
        """Fill an array of any type, of an even number of bytes, with stored weights of a type; asynchronous."""
        if type_name not in self._patterns:
            pattern = pattern_of(type_name)
            self._patterns[type_name] = tuple(self.device.upload(PATTERNS, values) for values in (pattern.kept, pattern.fixed))
        self.seed += 1
        launch_fill(self.device, raw.view(np.uint8), *self._patterns[type_name], seed_of(self.seed)).go()


def seed_of(seed: int) -> int:
    """Return a number below 2^62 far from that of the next seed."""
    return seed * 0x1E3779B97F4A7C15 % (1 << 62)


def placer_of(generator: Generator):
    """Return a Placer type that generates what it would upload."""

    class SyntheticPlacer(Placer):
        def raw(self, tensor: Spec):
            placed = self.device.empty(self.purpose, tensor.n_bytes, np.uint8)
            generator.fill(placed, tensor.type_name)
            return placed

        def vector(self, tensor: Spec):
            mean, deviation = tensor.spread
            generator.seed += 1
            values = np.random.default_rng(generator.seed).normal(mean, deviation, tensor.n_weights)
            return self.device.upload(self.purpose, values.astype(np.float32))

    return SyntheticPlacer


def stage_of(device: CudaDevice, config: ModelConfig, weights: Weights, seed: int, routed: bool = True) -> CardStage:
    """Generate all weights on a card, without `routed` all but the experts; `require_room` has been asked before."""
    stage = place_stage(device, weights, config, 0, config.n_layers, placer_of(Generator(device, seed << 20)), routed=routed)
    device.synchronise()
    return stage


def session_bytes(config: ModelConfig, n_slots: int, context: int) -> int:
    """Return the bytes of sessions of `context` positions with half-precision cells."""
    c = config
    recurrent = len(c.gdn_layers) * (c.n_ssm_v_heads * c.ssm_state**2 + (c.conv_taps - 1) * c.ssm_channels) * 4
    cells = len(c.qsa_layers) * context * (2 * c.kv_width * 2 + c.indexer_dim * 2 + c.indexer_dim * 4 // c.indexer_block)
    return n_slots * (recurrent + cells)


def require_room(device: CudaDevice, config: ModelConfig, weights: Weights, n_slots: int, context: int, resident: float = 1.0) -> None:
    """Raise DeviceError where a model with a share of its experts does not fit, naming what is asked and free, and how many layers fit."""
    absent = sum((1 - resident) * spec.n_bytes for layer in weights.layers for spec in banks_of(layer.moe))
    asked = sum(spec.n_bytes for spec in specs_in(weights)) - absent + session_bytes(config, n_slots, context) + SPARE_BYTES
    free = device.memory().free_bytes
    if asked <= free:
        return
    layer = max(sum(spec.n_bytes for spec in specs_in(part)) for part in weights.layers) - absent / config.n_layers
    fitting = (config.n_layers - math.ceil((asked - free) / layer)) // config.qsa_interval * config.qsa_interval
    remedy = f"use --layers {fitting}" if fitting > 0 else "use a card with more memory, or a smaller format of --experts"
    raise DeviceError(
        f"{config.n_layers} layers, with sessions and buffers, ask for {asked / 1e9:.1f} GB on {device.name}",
        f"{free / 1e9:.1f} GB are free there", remedy,
    )


def weights_of(config: ModelConfig, dense: str, experts: str, head: str) -> Weights:
    """Return the specs of a model's weights."""
    return Writer(config, dense, experts, head).weights()


def fill_cells(sessions: Sessions, seed: int) -> None:
    """Fill keys, values, raw and pooled keys of all slots with random numbers, as if every position had been read."""
    generator = Generator(sessions.device, seed << 20 | 1 << 19)
    for cells in sessions.cells.values():
        for array in (cells.k_codes, cells.v_codes, cells.raw, cells.pooled):
            generator.fill(array, "F32" if array.dtype == np.float32 else "F16")
    sessions.device.synchronise()
