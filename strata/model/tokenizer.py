"""Text to token ids and back: byte-level BPE, built from a model file's own keys.

Special tokens are cut out of the text first; the rest is split by the pre-tokenizer's regular expression, each piece's
UTF-8 bytes become printable characters (GPT-2's table), and merges apply lowest rank first.  No BOS, no prefix space,
no normalisation.  The `tokenizers` library does the work and is imported when a tokenizer is made.  Does not know: chat
templates, end-of-generation rules.
"""

import codecs
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strata.errors import ModelFileError, RequestError
from strata.model.keys import Keys

if TYPE_CHECKING:
    import tokenizers

SPLIT_PATTERNS = {
    "gpt-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "qwen2": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "qwen35": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
"""Regular expressions by the name that `tokenizer.ggml.pre` holds, as the models' `tokenizer.json` files have them."""

_CONTROL, _USER_DEFINED = 3, 4
"""Token types of GGUF that are matched as a whole before anything is split; control tokens are the special ones."""


@dataclass(frozen=True, slots=True, eq=False)
class Tokenizer:
    """A model's tokenizer; `pieces[id]` is a token's bytes, `special_ids` are the control tokens."""

    pieces: tuple[bytes, ...]
    special_ids: frozenset[int]
    _backend: "tokenizers.Tokenizer"

    @property
    def vocabulary(self) -> int:
        return len(self.pieces)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`; special tokens written out in it become their ids."""
        return self._backend.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Iterable[int], skip_special: bool = False) -> str:
        """The text of token ids; bytes that are not UTF-8 become U+FFFD.  Raises RequestError for an unknown id."""
        return self._bytes(ids, skip_special).decode("utf-8", errors="replace")

    def piece(self, token: int) -> bytes:
        """The bytes of one token; raises RequestError for an unknown id."""
        if not 0 <= token < len(self.pieces):
            raise RequestError(
                f"token id {token}",
                f"the vocabulary has {len(self.pieces)} tokens",
                "send ids of this model's tokenizer",
            )
        return self.pieces[token]

    def _bytes(self, ids: Iterable[int], skip_special: bool) -> bytes:
        return b"".join(self.piece(token) for token in ids if not (skip_special and token in self.special_ids))


class Decoder:
    """Decodes a stream of tokens; holds back the bytes of a character until it is complete."""

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = False) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """The text that `token` completes; may be empty."""
        if self._skip_special and token in self._tokenizer.special_ids:
            return ""
        return self._utf8.decode(self._tokenizer.piece(token))

    def finish(self) -> str:
        """What is left at the end: U+FFFD for an incomplete character, else nothing."""
        return self._utf8.decode(b"", final=True)


def read_tokenizer(keys: Keys) -> Tokenizer:
    """Build the tokenizer that a model's keys describe; raises ModelFileError for kinds this engine does not know."""
    kind, split = keys.text("tokenizer.ggml.model"), keys.text("tokenizer.ggml.pre")
    if kind != "gpt2":
        why = "only byte-level BPE (gpt2) is known"
        raise ModelFileError(f"key tokenizer.ggml.model={kind}", why, "use another file")
    if split not in SPLIT_PATTERNS:
        known = ", ".join(SPLIT_PATTERNS)
        raise ModelFileError(f"key tokenizer.ggml.pre={split}", f"known are {known}", "use another file")
    tokens = keys.texts("tokenizer.ggml.tokens")
    kinds = _token_types(keys, len(tokens))
    whole = [token for token, type_id in enumerate(kinds) if type_id in (_CONTROL, _USER_DEFINED)]
    merges = [_merge(line) for line in keys.texts("tokenizer.ggml.merges")]
    backend = _backend(tokens, merges, whole, SPLIT_PATTERNS[split])
    control = frozenset(token for token in whole if kinds[token] == _CONTROL)
    return Tokenizer(_pieces(tokens, whole), control, backend)


def _token_types(keys: Keys, n_tokens: int) -> tuple[int, ...]:
    types = keys.integers("tokenizer.ggml.token_type")
    if len(types) != n_tokens:
        raise ModelFileError(
            "key tokenizer.ggml.token_type",
            f"it has {len(types)} entries for {n_tokens} tokens",
            "convert the model again",
        )
    return types


def _merge(line: str) -> tuple[str, str]:
    left, blank, right = line.partition(" ")
    if not blank or not left or not right or " " in right:
        raise ModelFileError(f"merge {line!r}", "it is not two tokens with a space between", "convert the model again")
    return left, right


def _backend(
    tokens: Sequence[str], merges: list[tuple[str, str]], whole: list[int], pattern: str
) -> "tokenizers.Tokenizer":
    from tokenizers import AddedToken, Regex, Tokenizer as Backend
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel, Sequence as Chain, Split

    vocabulary = {text: token for token, text in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise ModelFileError("key tokenizer.ggml.tokens", "two tokens have the same text", "convert the model again")
    try:
        backend = Backend(BPE(vocab=vocabulary, merges=merges))
    except Exception as error:
        why = " ".join(str(error).split())
        raise ModelFileError("key tokenizer.ggml.merges", why, "convert the model again") from error
    backend.pre_tokenizer = Chain([
        Split(Regex(pattern), behavior="isolated"),
        ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    backend.add_special_tokens([AddedToken(tokens[token], normalized=False, special=True) for token in whole])
    return backend


def _pieces(tokens: Sequence[str], whole: list[int]) -> tuple[bytes, ...]:
    byte_of = {character: byte for byte, character in enumerate(byte_characters())}
    literal = set(whole)
    return tuple(
        text.encode("utf-8") if token in literal or not set(text) <= byte_of.keys() else bytes(map(byte_of.get, text))
        for token, text in enumerate(tokens)
    )


def byte_characters() -> tuple[str, ...]:
    """GPT-2's printable character for each byte 0..255.

    Printable Latin-1 bytes stand for themselves; the others take the code points from 256 on, in ascending order.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(256, 512))
    return tuple(chr(byte if byte in printable else next(others)) for byte in range(256))
