"""The tokens that the draft layer may propose.

They come from the key `nextn.draft_token_ids`, else from `draft_vocab.bin` (little-endian int32) beside the model or in
its folder `rt`, else they are the whole vocabulary.  Returned ascending, so that ties fall to the lower id.  Does not
know: the draft layer.
"""

from pathlib import Path

import numpy as np

from strata.errors import ModelFileError
from strata.model.files import ARCHITECTURE, ModelFiles

KEY = f"{ARCHITECTURE}.nextn.draft_token_ids"
FILE_NAME = "draft_vocab.bin"


def read_draft_token_ids(files: ModelFiles, vocabulary: int) -> tuple[int, ...]:
    """The draft vocabulary of an opened model, ascending; raises ModelFileError for ids out of range or repeated."""
    if KEY in files.keys:
        return _checked(files.keys.integers(KEY), f"key {KEY}", vocabulary)
    for path in (files.folder / FILE_NAME, files.folder / "rt" / FILE_NAME):
        if path.is_file():
            return _checked(_from_file(path), f"{path}", vocabulary)
    return tuple(range(vocabulary))


def _from_file(path: Path) -> tuple[int, ...]:
    content = path.read_bytes()
    if len(content) % 4:
        raise ModelFileError(f"{path}", f"its {len(content)} bytes are not whole 32-bit numbers", "copy the file again")
    return tuple(np.frombuffer(content, dtype="<i4").tolist())


def _checked(ids: tuple[int, ...], source: str, vocabulary: int) -> tuple[int, ...]:
    if not ids:
        raise ModelFileError(source, "it lists no token", "use the draft vocabulary that was made for this model")
    wrong = [token for token in ids if not 0 <= token < vocabulary]
    if wrong:
        raise ModelFileError(
            f"{source}: token id {wrong[0]}", f"the vocabulary has {vocabulary} tokens", "use this model's own file"
        )
    if len(set(ids)) != len(ids):
        raise ModelFileError(source, "it lists a token id twice", "list every token once")
    return tuple(sorted(ids))
