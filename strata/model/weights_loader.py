"""From an opened model's tensors to the tree of `weights.py`.

Each tensor is taken once, under its canonical name, and its shape is checked against the configuration; whatever is
left over at the end is refused, because an unread tensor means that the model would compute something else.  Does not
know: weight formats, arithmetic.
"""

from collections.abc import Iterable
from dataclasses import replace

from strata.errors import ModelFileError
from strata.model import names
from strata.model.config import ModelConfig
from strata.model.files import ModelFiles
from strata.model.tensor import Tensor
from strata.model.weights import (
    DraftWeights,
    GdnWeights,
    IndexerWeights,
    LayerWeights,
    MoeWeights,
    PleWeights,
    QsaWeights,
    StreamMixer,
    Weights,
)


def load_weights(files: ModelFiles, config: ModelConfig) -> Weights:
    """Sort an opened model's tensors into a tree.

    Raises ModelFileError for a missing tensor, a wrong shape, a block format where floats are needed, or leftovers.
    """
    shelf = _Shelf(files, config)
    weights = Weights(
        **shelf.take(names.TOP, ""),
        output_hc=StreamMixer(**shelf.take(names.OUTPUT_MIXER, "")),
        layers=tuple(_layer(shelf, config, index) for index in range(config.n_layers)),
        draft=_draft(shelf, config) if config.n_draft_layers else None,
    )
    shelf.refuse_leftovers()
    return weights


def _layer(shelf: "_Shelf", config: ModelConfig, index: int) -> LayerWeights:
    prefix = names.layer_name(index, "")
    if config.is_qsa(index):
        attention = QsaWeights(
            **shelf.take(names.ATTENTION, prefix), indexer=IndexerWeights(**shelf.take(names.INDEXER, prefix))
        )
    else:
        attention = GdnWeights(**shelf.take(names.GDN, prefix))
    return LayerWeights(
        index=index,
        attention_mixer=StreamMixer(**shelf.take(names.ATTENTION_MIXER, prefix)),
        attention=attention,
        moe_mixer=StreamMixer(**shelf.take(names.MOE_MIXER, prefix)),
        moe=MoeWeights(**shelf.take(names.MOE, prefix)),
        ple=PleWeights(**shelf.take(names.PLE, prefix)) if config.is_ple(index) else None,
    )


def _draft(shelf: "_Shelf", config: ModelConfig) -> DraftWeights:
    prefix = names.layer_name(config.n_layers, "")
    shelf.split_fused_draft_input(prefix + names.FUSED_DRAFT_INPUT)
    indexer = None
    if shelf.holds(names.INDEXER, prefix):
        indexer = IndexerWeights(**shelf.take(names.INDEXER, prefix))
    return DraftWeights(
        **shelf.take(names.DRAFT, prefix),
        attention_mixer=StreamMixer(**shelf.take(names.ATTENTION_MIXER, prefix)),
        attention=QsaWeights(**shelf.take(names.ATTENTION, prefix), indexer=indexer),
        moe_mixer=StreamMixer(**shelf.take(names.MOE_MIXER, prefix)),
        moe=MoeWeights(**shelf.take(names.MOE, prefix)),
        output_mixer=StreamMixer(**shelf.take(names.DRAFT_OUTPUT_MIXER, prefix)),
    )


class _Shelf:
    """The tensors not yet taken, by canonical name."""

    def __init__(self, files: ModelFiles, config: ModelConfig) -> None:
        self._config = config
        self._source = files.keys.source
        self._tensors: dict[str, Tensor] = {}
        for name, tensor in files.tensors.items():
            canonical = names.canonical_name(name, config.n_layers)
            if canonical in self._tensors:
                raise ModelFileError(
                    f"tensor {name}", f"{self._tensors[canonical].name} is the same tensor", "keep one of the two"
                )
            self._tensors[canonical] = tensor

    def holds(self, group: Iterable[names.Entry], prefix: str) -> bool:
        return any(prefix + entry.name in self._tensors for entry in group)

    def take(self, group: Iterable[names.Entry], prefix: str) -> dict[str, Tensor]:
        """Remove a group's tensors and return them by field."""
        return {entry.field: self._take_one(entry, prefix + entry.name) for entry in group}

    def split_fused_draft_input(self, name: str) -> None:
        """Replace a fused draft projection by its two halves (copies of encoded bytes)."""
        fused = self._tensors.pop(name, None)
        if fused is None:
            return
        halves = split_columns(fused, 2 * self._config.hidden)
        for half, entry_name in zip(halves, ("nextn.fc_embedding.weight", "nextn.fc_hidden.weight"), strict=True):
            self._tensors[names.layer_name(self._config.n_layers, entry_name)] = half

    def refuse_leftovers(self) -> None:
        if not self._tensors:
            return
        left = [tensor.name for tensor in self._tensors.values()]
        more = f" and {len(left) - 3} more" if len(left) > 3 else ""
        raise ModelFileError(
            f"tensor {', '.join(left[:3])}{more}",
            f"nothing in the model reads it (n_layers={self._config.n_layers}, "
            f"n_draft_layers={self._config.n_draft_layers})",
            "use a file without it, or with the keys that belong to it",
        )

    def _take_one(self, entry: names.Entry, name: str) -> Tensor:
        tensor = self._tensors.pop(name, None)
        if tensor is None:
            raise ModelFileError(
                f"tensor {name}", f"{self._source} lacks it", "download the model again, with all its shards"
            )
        if tensor.is_quantised and (len(entry.dimensions) == 1 or entry.field == "conv"):
            raise ModelFileError(
                f"tensor {tensor.name} of type {tensor.type_name}", "vectors are read as floats", "store it as F32"
            )
        return _with_shape(tensor, entry, self._config)


def split_columns(tensor: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    """Cut every row of a [rows, columns] tensor in the middle, at a block border; copies the encoded bytes."""
    if len(tensor.shape) != 2 or tensor.columns != columns or tensor.row_bytes % 2:
        raise ModelFileError(
            f"tensor {tensor.name} of shape {list(tensor.shape)} and type {tensor.type_name}",
            f"its rows do not divide into two halves of {columns // 2}",
            "use a file that stores fc_embedding and fc_hidden apart",
        )
    halves = tensor.as_bytes().reshape(tensor.rows, 2, -1)
    shape = (tensor.rows, columns // 2)
    first, second = (replace(tensor, shape=shape, raw=halves[:, half].copy().reshape(-1)) for half in (0, 1))
    return first, second


def _with_shape(tensor: Tensor, entry: names.Entry, config: ModelConfig) -> Tensor:
    """The tensor in its expected shape; per-stream vectors may be stored as [streams, hidden]."""
    expected = entry.shape(config)
    if entry.dimensions == ("residual_width",) and tensor.shape == (config.n_streams, config.hidden):
        return replace(tensor, shape=expected)
    fits = len(tensor.shape) == len(expected) and all(
        stored >= size if dimension in names.AT_LEAST else stored == size
        for stored, size, dimension in zip(tensor.shape, expected, entry.dimensions, strict=True)
    )
    if not fits:
        raise ModelFileError(
            f"tensor {tensor.name} of shape {list(tensor.shape)}",
            f"the keys imply {list(expected)} (" + ", ".join(entry.dimensions) + ")",
            "use tensors and keys of the same model",
        )
    return tensor
