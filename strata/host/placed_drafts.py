"""The draft layer's weights as the host uses them.

It shares the trunk's embedding and head.  Where its vocabulary is a part of the trunk's, the head's rows of that part are
copied once, packed as they are, so that a draft costs those rows only; every slot's drafter shares them.
Does not know: arithmetic, slots.
"""

from dataclasses import dataclass

import numpy as np

from strata.errors import UsageError
from strata.host.matrix import Matrix
from strata.host.placed import PlacedMixer, PlacedMoe, PlacedQsa, PlacedStage, Rows, place_attention, place_mixer, place_moe, tensors_of
from strata.model.config import ModelConfig
from strata.model.weights import Weights


@dataclass(frozen=True, slots=True, eq=False)
class PlacedDrafts:
    """The draft layer; `head` has one row per id of `token_ids` (int32, ascending)."""

    hidden_norm: np.ndarray
    embedding_norm: np.ndarray
    fc_hidden: Matrix
    fc_embedding: Matrix
    attention_mixer: PlacedMixer
    attention: PlacedQsa
    moe_mixer: PlacedMixer
    moe: PlacedMoe
    output_mixer: PlacedMixer
    embedding: Rows
    head: Matrix
    token_ids: np.ndarray
    weight_bytes: int


def place_drafts(weights: Weights, config: ModelConfig, stage: PlacedStage) -> PlacedDrafts:
    """Wrap the draft layer beside the last stage; raises UsageError where the model has none.

    `weight_bytes` counts what the stage does not hold already: the layer, its part of the head, and the embedding where
    the stage is not the first one too.
    """
    draft = weights.draft
    if draft is None:
        raise UsageError("mtp=yes", "the model has no draft layer", "name the file that has it too, or leave --mtp out")
    is_whole = len(config.draft_token_ids) == config.vocabulary
    token_ids = np.array(config.draft_token_ids, np.int32)
    head = stage.output if is_whole else Matrix(weights.output.chosen(token_ids, "draft"))
    embedding = stage.embedding or Rows(weights.token_embd)
    extra = (0 if is_whole else head.nbytes) + (0 if stage.embedding else embedding.nbytes)
    return PlacedDrafts(
        hidden_norm=draft.hidden_norm.floats(), embedding_norm=draft.embedding_norm.floats(),
        fc_hidden=Matrix(draft.fc_hidden), fc_embedding=Matrix(draft.fc_embedding),
        attention_mixer=place_mixer(draft.attention_mixer), attention=place_attention(draft.attention, config),
        moe_mixer=place_mixer(draft.moe_mixer), moe=place_moe(draft.moe), output_mixer=place_mixer(draft.output_mixer),
        embedding=embedding, head=head, token_ids=token_ids,
        weight_bytes=sum(tensor.raw.size for tensor in tensors_of(draft)) + extra,
    )
