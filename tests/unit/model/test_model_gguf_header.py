"""Files that are not sound GGUF are refused with the reason."""

import struct

import pytest

from strata.model.files import open_model
from tests.unit.model import synthetic
from tests.unit.model.damage import cut, refusal, rename_in_place, set_innermost, set_offset, set_type_id

TENSOR = "blk.1.attn_gate.weight"


@pytest.fixture
def path(tmp_path):
    return synthetic.build(seed=5).write(tmp_path / "tiny.gguf")


@pytest.mark.parametrize("content", [b"", b"GG", b"PK\x03\x04 something else", b"\x00" * 4096])
def test_a_file_of_another_kind_is_not_gguf(tmp_path, content):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    error = refusal(lambda: open_model(path))
    assert str(path) == error.what and "not a GGUF file" in error.why


def test_missing_tensor_data_is_called_truncated(path):
    size = path.stat().st_size
    error = refusal(lambda: open_model(cut(path, size - 1000)))
    assert "truncated" in error.why and f"the file has {size - 1000:,} bytes" in error.why
    assert "download" in error.remedy


def header_bytes(path):
    """Bytes up to the first tensor's data, found from the file's first tensor record."""
    first = min(open_model(path).tensors.values(), key=lambda tensor: tensor.raw.ctypes.data)
    return path.read_bytes().index(first.raw.tobytes())


def test_every_cut_through_the_header_is_refused(path, tmp_path):
    content = path.read_bytes()
    ends = sorted({4, 5, 8, 16, 23, 24, 25, *range(30, header_bytes(path), 97)})
    for end in ends:
        short = tmp_path / "short.gguf"
        short.write_bytes(content[:end])
        error = refusal(lambda short=short: open_model(short))
        assert "truncated" in error.why, (end, str(error))


def test_a_file_without_tensor_data_is_called_truncated(path):
    error = refusal(lambda: open_model(cut(path, header_bytes(path))))
    assert "truncated" in error.why and "tensor " in error.why


@pytest.mark.parametrize("type_id", [99, 3, 26])
def test_an_unknown_weight_type_is_named_with_its_tensor(path, type_id):
    error = refusal(lambda: open_model(set_type_id(path, TENSOR, type_id)))
    assert TENSOR in error.what and str(path) in error.what
    assert f"weight type {type_id}" in error.why
    assert "Q4_K" in error.remedy


def test_a_tensor_that_stands_twice_in_a_file_is_refused(path):
    error = refusal(lambda: open_model(rename_in_place(path, "blk.2.attn_gate.weight", TENSOR)))
    assert f"tensor {TENSOR} stands in it twice" in error.why


def test_a_row_that_does_not_divide_into_blocks_is_refused(path):
    error = refusal(lambda: open_model(set_innermost(path, TENSOR, 60)))
    assert TENSOR in error.why and "60" in error.why and "blocks of 32" in error.why


def test_an_offset_beyond_the_end_is_called_truncated(path):
    error = refusal(lambda: open_model(set_offset(path, TENSOR, 1 << 40)))
    assert "truncated" in error.why and TENSOR in error.why


def test_an_unaligned_offset_is_refused(path):
    error = refusal(lambda: open_model(set_offset(path, TENSOR, 33)))
    assert TENSOR in error.why and "multiple of 32" in error.why


@pytest.mark.parametrize(("at", "value"), [(8, 1 << 60), (16, 1 << 60)])
def test_absurd_counts_end_in_a_refusal(path, at, value):
    content = bytearray(path.read_bytes())
    struct.pack_into("<Q", content, at, value)
    path.write_bytes(content)
    assert str(path) in refusal(lambda: open_model(path)).what


def test_another_version_of_the_format_is_refused(path):
    content = bytearray(path.read_bytes())
    struct.pack_into("<I", content, 4, 9)
    path.write_bytes(content)
    assert "version 9" in refusal(lambda: open_model(path)).why


def test_a_key_that_stands_twice_is_refused(path):
    rename_in_place(path, "qwen4exp.ssm.group_count", "qwen4exp.ssm.conv_kernel")
    error = refusal(lambda: open_model(path))
    assert "qwen4exp.ssm.conv_kernel" in error.why


def test_text_that_is_not_utf8_is_refused_when_read(path):
    content = path.read_bytes()
    path.write_bytes(content.replace(b"<|im_start|>", b"<|im_\xff\xfeart|>"))
    files = open_model(path)
    assert "not UTF-8" in refusal(lambda: files.keys.texts("tokenizer.ggml.tokens")).why


def test_a_file_that_names_no_architecture_is_refused(path):
    rename_in_place(path, "general.architecture", "general.archiTECTURE")
    error = refusal(lambda: open_model(path))
    assert error.what == "key general.architecture" and str(path) in error.why
