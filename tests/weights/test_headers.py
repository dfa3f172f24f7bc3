"""Reading safetensors headers: against the library itself, and what a damaged file is said to be."""

import json
import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from infernix_plugin.errors import CheckpointError
from infernix_plugin.model_executor.weights.headers import INDEX, read_checkpoint, read_file

TYPES = {
    "BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
}  # fmt: skip


@pytest.fixture
def tensors():
    shapes = [(), (0,), (3,), (2, 5), (4, 1, 2)]
    return {
        f"layer.{name}.{i}": torch.zeros(shape, dtype=dtype)
        for name, dtype in TYPES.items()
        for i, shape in enumerate(shapes)
    }


@pytest.fixture
def sharded(tmp_path, tensors):
    """The tensors in two files with an index."""
    names = sorted(tensors)
    parts = {"a.safetensors": names[: len(names) // 2], "b.safetensors": names[len(names) // 2 :]}
    for file, part in parts.items():
        save_file({name: tensors[name] for name in part}, tmp_path / file)
    index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
    (tmp_path / INDEX).write_text(json.dumps(index))
    return tmp_path


def test_every_type_and_shape_is_what_the_library_reads(tmp_path, tensors):
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    found = read_checkpoint(tmp_path)
    loaded = load_file(tmp_path / "model.safetensors")
    assert {name: tensor.shape for name, tensor in found.items()} == {n: tuple(t.shape) for n, t in loaded.items()}
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert all(tensor.dtype == file.get_slice(name).get_dtype() for name, tensor in found.items())
    assert all(tensor.bytes == loaded[name].nbytes for name, tensor in found.items())


def test_shards_are_one_checkpoint(sharded, tensors):
    found = read_checkpoint(sharded)
    assert set(found) == set(tensors)
    assert {tensor.file for tensor in found.values()} == {"a.safetensors", "b.safetensors"}


def test_a_file_that_the_index_does_not_name_is_not_read(sharded, tensors):
    save_file({"other": torch.zeros(1)}, sharded / "consolidated.safetensors")
    assert set(read_checkpoint(sharded)) == set(tensors)


def damaged(folder, change):
    (folder / "b.safetensors").write_bytes(change((folder / "b.safetensors").read_bytes()))


def reheaded(data, change):
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


def headed(header):
    return len(header).to_bytes(8, "little") + header


def entry(header):
    return next(value for name, value in header.items() if name != "__metadata__" and value["data_offsets"][1])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: b"", "truncated"),
        (lambda data: data[:5], "truncated"),
        (lambda data: data[:40], "truncated"),
        (lambda data: data[:-1], "1 of"),
        (lambda data: data + b"x", "1 bytes behind"),
        (lambda data: data[:8] + b"x" * (len(data) - 8), "no JSON"),
        (lambda data: (2).to_bytes(8, "little") + b"[]", "no JSON object"),
        (lambda data: (1 << 62).to_bytes(8, "little") + data[8:], "truncated"),
        (lambda data: reheaded(data, lambda h: entry(h).update(dtype="F33")), "makes no sense"),
        (lambda data: reheaded(data, lambda h: entry(h).update(shape=[-1])), "makes no sense"),
        (lambda data: reheaded(data, lambda h: entry(h).update(shape=[True])), "makes no sense"),
        (lambda data: reheaded(data, lambda h: entry(h).pop("data_offsets")), "makes no sense"),
        (lambda data: reheaded(data, lambda h: entry(h)["shape"].append(7)), "is not where it should be"),
        (lambda data: reheaded(data, lambda h: entry(h).update(data_offsets=[1, 2])), "is not where it should be"),
        (lambda data: reheaded(data, lambda h: h.update({"a\x1b[31m": entry(h)})), r"entry of 'a\\x1b\[31m' makes no"),
        (lambda data: reheaded(data, lambda h: h.update({"\ud800": entry(h)})), r"entry of '\\ud800' makes no sense"),
        (lambda data: headed(b"[" * 100_000), "no JSON: maximum recursion"),
        (lambda data: headed(b'{"a": ' + b"9" * 5_000 + b"}"), "no JSON: Exceeds the limit"),
        (lambda data: headed(b'{"a": 1, "b": 1, "a": 1}'), "its header has 'a' twice"),
        (lambda data: headed(b'{"\xff": 1}'), "no JSON: 'utf-8' codec"),
    ],
)
def test_a_damaged_file_is_named(sharded, change, says):
    damaged(sharded, change)
    with pytest.raises(CheckpointError, match=says) as refused:
        read_checkpoint(sharded)
    assert "b.safetensors" in str(refused.value)
    assert str(sharded) not in str(refused.value)


@given(st.data())
def test_what_the_library_refuses_is_refused(tmp_path_factory, data):
    """Bytes of a small file changed at random: whatever we read without complaint, the library does too."""
    path = tmp_path_factory.mktemp("fuzz") / "x.safetensors"
    save_file({"a": torch.zeros(2, 3), "b": torch.zeros(4, dtype=torch.bfloat16)}, path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content[: data.draw(st.sampled_from([len(content), len(content) - 1, 60]))]))
    try:
        ours = {tensor.name for tensor in read_file(path)}
    except CheckpointError:
        return
    with safe_open(path, "pt") as file:
        assert ours == set(file.keys())


@pytest.mark.parametrize(
    ("index", "says"),
    [
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ('{"weight_map": {}}', "no weight_map"),
        ('{"weight_map": {"a": "a.safetensors", "a": "b.safetensors"}}', "has 'a' twice"),
        ('{"weight_map": {"a": ""}}', "names the file '', which is none of the directory's"),
        ('{"weight_map": {"a": "../a.safetensors"}}', "which is none of the directory's"),
        ('{"weight_map": {"a": "/dev/zero"}}', "names the file '/dev/zero', which is none of the directory's"),
        ('{"weight_map": {"a": "\\u0000"}}', r"names the file '\\x00', which is none"),
        ("[]", "no weight_map"),
        ('{"weight_map": {"a": 1}}', "no weight_map"),
        ('{"weight_map": {"a": "c.safetensors"}}', "c.safetensors is missing"),
        ('{"weight_map": {"nowhere": "a.safetensors"}}', "a.safetensors does not hold nowhere"),
    ],
)
def test_a_wrong_index_is_named(sharded, index, says):
    (sharded / INDEX).write_text(index)
    with pytest.raises(CheckpointError, match=says):
        read_checkpoint(sharded)


@pytest.mark.parametrize("kind", ["a directory", "a link to itself", "a link to nothing", "a pipe"])
@pytest.mark.parametrize("name", ["b.safetensors", INDEX])
def test_what_is_no_file_is_named(sharded, name, kind):
    """A pipe would be waited for until somebody writes."""
    path = sharded / name
    path.unlink()
    if kind == "a directory":
        path.mkdir()
    elif kind == "a pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(name if kind == "a link to itself" else "nowhere")
    with pytest.raises(CheckpointError, match=f"^{name} is no file$"):
        read_checkpoint(sharded)


def test_a_tensor_in_two_files_is_named(sharded, tensors):
    (sharded / INDEX).unlink()
    save_file({"layer.I8.3": tensors["layer.I8.3"]}, sharded / "c.safetensors")
    with pytest.raises(CheckpointError, match=r"layer\.I8\.3 is in .* and in c\.safetensors"):
        read_checkpoint(sharded)


def test_a_tensor_in_another_file_than_the_index_says_is_named(sharded):
    index = json.loads((sharded / INDEX).read_text())
    index["weight_map"]["layer.BF16.0"] = "b.safetensors"
    (sharded / INDEX).write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"b\.safetensors does not hold layer\.BF16\.0, which is in a\.safe"):
        read_checkpoint(sharded)


def test_no_files_is_said(tmp_path):
    with pytest.raises(CheckpointError, match="no safetensors"):
        read_checkpoint(tmp_path)
