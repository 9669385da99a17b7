"""The tokenizer built from a file's keys, against given ids and against the library's own file format."""

import json

import numpy as np
import pytest
import tokenizers

from strata.errors import RequestError
from strata.model.files import open_model
from strata.model.tokenizer import Decoder, byte_characters, read_tokenizer
from tests.unit.model import synthetic
from tests.unit.model.damage import refusal
from tests.unit.model.fixture_files import FOLDER, MAIN

AWKWARD = [
    "", " ", "  \n\t  x ", "héllo wörld's 'LL I'll", "日本語のテスト 😀👩‍👩‍👧",
    "a<|im_end|>b <|im_start|>user", "\u00a0 \u2003x\u3000",
    "١٢٣ ²³ Ⅷ 12345", "def f(x):\n    return x  # ...\n\n\n", "<|endoftext|><|endoftext|>",
    "<|im_star", "\x00\x1f\x7f", "e\u0301\u0302",
]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer():
    return read_tokenizer(open_model(MAIN).keys)


@pytest.fixture(scope="module")
def prompts():
    return json.loads((FOLDER / "prompts.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def library():
    return tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))


def synthetic_keys(folder, **changes):
    model = synthetic.build(seed=1)
    model.tensors.clear()
    model.keys |= {f"tokenizer.ggml.{name}": value for name, value in changes.items()}
    return open_model(model.write(folder / "tiny.gguf")).keys


@pytest.mark.parametrize("number", range(32))
def test_every_prompt_encodes_to_its_stored_ids_and_back(tokenizer, prompts, number):
    prompt = prompts[number]
    assert tokenizer.encode(prompt["text"]) == prompt["ids"]
    assert tokenizer.decode(prompt["ids"]) == prompt["text"]


def test_there_are_32_prompts_and_a_changed_text_has_other_ids(tokenizer, prompts):
    assert len(prompts) == 32
    for prompt in prompts:
        assert tokenizer.encode(prompt["text"] + "!") != prompt["ids"]


@pytest.mark.parametrize("text", AWKWARD)
def test_awkward_texts_encode_as_the_library_does_and_come_back(tokenizer, library, text):
    ids = tokenizer.encode(text)
    assert ids == library.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids) == text


def test_random_texts_encode_as_the_library_does(tokenizer, library):
    random = np.random.default_rng(7)
    alphabet = list("aetoin srhl'\n\t.,_(){}=0123456789ABC") + ["é", "ß", "漢", "😀", "<|im_end|>", "\u00a0"]
    for _ in range(200):
        text = "".join(random.choice(alphabet, size=random.integers(1, 80)))
        ids = tokenizer.encode(text)
        assert ids == library.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(ids) == text


def test_special_tokens_are_cut_out_first(tokenizer):
    assert tokenizer.special_ids == {4093, 4094, 4095}
    assert tokenizer.encode("<|im_start|><|im_end|><|endoftext|>") == [4094, 4095, 4093]
    assert tokenizer.vocabulary == 4096


def test_special_tokens_can_be_left_out_of_the_text(tokenizer):
    ids = tokenizer.encode("<|im_start|>user\nhi<|im_end|>")
    assert tokenizer.decode(ids, skip_special=True) == "user\nhi"
    assert tokenizer.decode(ids) == "<|im_start|>user\nhi<|im_end|>"


def test_every_piece_is_the_bytes_of_its_token(tokenizer, library):
    for token in range(4093):
        piece = tokenizer.piece(token)
        assert piece.decode("utf-8", errors="replace") == library.decode([token])
    assert tokenizer.piece(4095) == b"<|im_end|>"


def test_a_stream_never_shows_half_a_character(tokenizer):
    text = "naïve 日本語 😀👩‍👩‍👧 end"
    decoder = Decoder(tokenizer)
    parts = [decoder.push(token) for token in tokenizer.encode(text)]
    assert "".join(parts) == text and decoder.finish() == ""
    assert not any("\ufffd" in part for part in parts) and "" in parts


def test_a_stream_of_any_ids_gives_the_same_text_as_decoding_them_at_once(tokenizer):
    random = np.random.default_rng(11)
    for _ in range(100):
        ids = random.integers(0, 4096, size=40).tolist()
        decoder = Decoder(tokenizer)
        assert "".join(decoder.push(token) for token in ids) + decoder.finish() == tokenizer.decode(ids)


def test_a_stream_that_ends_inside_a_character_says_so(tokenizer):
    ids = tokenizer.encode("😀")
    assert len(ids) > 1
    decoder = Decoder(tokenizer)
    assert [decoder.push(token) for token in ids[:-1]] == [""] * (len(ids) - 1)
    assert decoder.finish() == "\ufffd"


def test_a_stream_can_leave_special_tokens_out(tokenizer):
    decoder = Decoder(tokenizer, skip_special=True)
    assert "".join(decoder.push(token) for token in tokenizer.encode("a<|im_end|>b")) == "ab"


@pytest.mark.parametrize("token", [-1, 4096])
def test_an_unknown_id_is_refused(tokenizer, token):
    with pytest.raises(RequestError, match=f"token id {token}: the vocabulary has 4096 tokens"):
        tokenizer.decode([5, token])
    with pytest.raises(RequestError, match=f"token id {token}"):
        Decoder(tokenizer).push(token)


def test_the_byte_table_has_256_different_printable_characters():
    table = byte_characters()
    assert len(table) == len(set(table)) == 256
    assert table[ord("A")] == "A" and table[ord(" ")] == "Ġ" and table[ord("\n")] == "Ċ" and table[0xAD] == "Ń"
    assert all(character.isprintable() for character in table)


def test_merges_apply_lowest_rank_first(tmp_path):
    tokenizer = read_tokenizer(synthetic_keys(tmp_path))
    vocabulary = [*byte_characters(), "th", "the", "in", "Ġthe", "on", "Ġa"]
    assert [vocabulary[token] for token in tokenizer.encode("the then in a")] == ["the", "Ġthe", "n", "Ġ", "in", "Ġa"]


def test_user_defined_tokens_are_whole_but_not_special(tmp_path):
    types = [1] * 262 + [3, 4, 3]
    tokenizer = read_tokenizer(synthetic_keys(tmp_path, token_type=types))
    assert tokenizer.encode("in<|im_start|>") == [258, 263]
    assert tokenizer.special_ids == {262, 264}
    assert tokenizer.decode([262, 263], skip_special=True) == "<|im_start|>"


@pytest.mark.parametrize("split", ["qwen2", "qwen35"])
def test_other_known_splits_come_back(tmp_path, split):
    tokenizer = read_tokenizer(synthetic_keys(tmp_path, pre=split))
    for text in AWKWARD:
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    ("changes", "what", "why"),
    [
        ({"model": "llama"}, "key tokenizer.ggml.model=llama", "byte-level BPE"),
        ({"pre": "dbrx"}, "key tokenizer.ggml.pre=dbrx", "known are gpt-2"),
        ({"token_type": [1, 1]}, "key tokenizer.ggml.token_type", "2 entries for 265 tokens"),
        ({"merges": ["th"]}, "merge 'th'", "not two tokens"),
        ({"merges": ["t h e"]}, "merge 't h e'", "not two tokens"),
        ({"merges": ["t x"]}, "key tokenizer.ggml.merges", "tx"),
        ({"tokens": ["a"] * 265}, "key tokenizer.ggml.tokens", "same text"),
        ({"merges": 3}, "key tokenizer.ggml.merges", "holds integer where texts is expected"),
    ],
)
def test_tokenizer_keys_that_do_not_fit_are_refused(tmp_path, changes, what, why):
    keys = synthetic_keys(tmp_path, **changes)
    error = refusal(lambda: read_tokenizer(keys))
    assert error.what == what and why in error.why


def test_a_file_without_tokenizer_is_refused(tmp_path):
    model = synthetic.build(seed=1)
    model.tensors.clear()
    del model.keys["tokenizer.ggml.tokens"]
    keys = open_model(model.write(tmp_path / "tiny.gguf")).keys
    assert refusal(lambda: read_tokenizer(keys)).what == "key tokenizer.ggml.tokens"
