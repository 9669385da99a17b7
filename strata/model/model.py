"""An opened model: its files, configuration and weights together.

The tokenizer and the chat template are made from the same files when they are asked for.  Does not know: devices.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from strata.model.config import ModelConfig
from strata.model.config_reader import read_config
from strata.model.files import ModelFiles, open_model
from strata.model.weights import Weights
from strata.model.weights_loader import load_weights


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """Files, configuration, weights; nothing is expanded."""

    files: ModelFiles
    config: ModelConfig
    weights: Weights


def load_model(path_or_paths: str | Path | Iterable[str | Path]) -> Model:
    """Open a model from one file, several, or a folder; raises ModelFileError."""
    files = open_model(path_or_paths)
    config = read_config(files)
    return Model(files, config, load_weights(files, config))
