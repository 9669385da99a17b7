"""The draft layer's weights on the card of the last stage.

It shares the stage's head where its vocabulary is the trunk's, and the embedding where the stage is the first one too.
Else the head's rows of the draft vocabulary are uploaded once, packed as they are, and the embedding once more.
Does not know: arithmetic, slots.
"""

from dataclasses import dataclass

import numpy as np

from strata.cuda.card.device import CudaDevice
from strata.cuda.memory.placed import CardStage, FloatMatrix, Part, Placer, Table
from strata.cuda.packed.products import Packed
from strata.errors import UsageError
from strata.model.config import ModelConfig
from strata.model.weights import QsaWeights, Weights

PURPOSE = "draft layer"


@dataclass(frozen=True, slots=True, eq=False)
class CardDrafts:
    """The draft layer; `head` has one row per id of `token_ids` (int32, ascending, on the host).

    `cells_mixer` is the attention's mixer without inject: what cells alone need.
    """

    hidden_norm: object
    embedding_norm: object
    fc_hidden: Packed | FloatMatrix
    fc_embedding: Packed | FloatMatrix
    attention_mixer: Part
    cells_mixer: Part
    attention: Part
    moe_mixer: Part
    moe: Part
    output_mixer: Part
    embedding: Table
    head: Packed | FloatMatrix
    token_ids: np.ndarray

    def of(self, layer: int) -> "CardDrafts":
        """The layer by its number, as a stage gives its own."""
        return self


def place_drafts(device: CudaDevice, weights: Weights, config: ModelConfig, stage: CardStage) -> CardDrafts:
    """Upload the draft layer beside the last stage; raises UsageError where the model has none."""
    draft = weights.draft
    if draft is None:
        raise UsageError("mtp=yes", "the model has no draft layer", "name the file that has it too, or leave --mtp out")
    placer = Placer(device, PURPOSE)
    token_ids = np.array(config.draft_token_ids, np.int32)
    is_whole = len(token_ids) == config.vocabulary
    mixer = placer.mixer(draft.attention_mixer)
    return CardDrafts(
        placer.vector(draft.hidden_norm), placer.vector(draft.embedding_norm), placer.matrix(draft.fc_hidden),
        placer.matrix(draft.fc_embedding), mixer, Part(mixer.named | {"inject": None}), _attention(placer, draft.attention),
        placer.mixer(draft.moe_mixer), placer.moe(draft.moe), placer.mixer(draft.output_mixer),
        stage.embedding or placer.table(weights.token_embd),
        stage.output if is_whole else placer.matrix(weights.output.chosen(token_ids, "draft")), token_ids,
    )


def _attention(placer: Placer, w: QsaWeights) -> Part:
    """Dense attention: an indexer that a file brings along is left out."""
    matrices = {name: placer.matrix(getattr(w, name)) for name in ("q", "k", "v", "output")}
    return Part(matrices | {name: placer.vector(getattr(w, name)) for name in ("q_norm", "k_norm")})
