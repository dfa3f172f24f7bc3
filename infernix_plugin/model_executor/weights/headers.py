"""What safetensors files say they hold: names, types and shapes, read from their headers and their index alone.

A file is eight bytes with the length of its header, the header (JSON) and the data; the format allows no gap, no
overlap and nothing behind the last tensor, so the sizes alone show a truncated or corrupt file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infernix_plugin.errors import CheckpointError

INDEX = "model.safetensors.index.json"
MAX_HEADER_BYTES = 100_000_000
"""The format's own limit."""

BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
"""Bits of an element by the format's name of its type."""


@dataclass(frozen=True)
class TensorHeader:
    """One tensor: name, type by the format's name (``BF16``), shape, and the name of its file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str

    @property
    def elements(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """What it takes in the file."""
        return self.elements * BITS[self.dtype] // 8


def read_checkpoint(directory: Path) -> dict[str, TensorHeader]:
    """Return every tensor of a checkpoint directory by name, sharded or not.

    Raises:
        CheckpointError: there are no files, one is missing, truncated or corrupt, a tensor is in two of them, or the
            index names one that is not where it says. One line that names the file.
    """
    index = directory / INDEX
    mapped = _read_index(index) if index.is_file() else {}
    files = sorted(set(mapped.values())) or sorted(path.name for path in directory.glob("*.safetensors"))
    if not files:
        raise CheckpointError(f"{directory.name} has no safetensors files")
    tensors: dict[str, TensorHeader] = {}
    for file in files:
        for tensor in read_file(directory / file):
            if tensor.name in tensors:
                raise CheckpointError(f"{tensor.name} is in {tensors[tensor.name].file} and in {file}")
            tensors[tensor.name] = tensor
    for name, file in mapped.items():
        if name not in tensors or tensors[name].file != file:
            found = f", which is in {tensors[name].file}" if name in tensors else ""
            raise CheckpointError(f"{file} does not hold {name}{found}; {INDEX} says so")
    return tensors


def read_file(path: Path) -> Iterator[TensorHeader]:
    """Yield the tensors of one file in the order of their data, after checking that the file is whole.

    Raises:
        CheckpointError: the file is missing, truncated or corrupt.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
                raise CheckpointError(f"{path.name} is truncated, or is no safetensors file: {size} bytes")
            header = json.loads(file.read(length))
    except FileNotFoundError:
        raise CheckpointError(f"{path.name} is missing") from None
    except (UnicodeDecodeError, json.JSONDecodeError):
        raise CheckpointError(f"{path.name} is corrupt: its header is no JSON") from None
    if not isinstance(header, dict):
        raise CheckpointError(f"{path.name} is corrupt: its header is no JSON object")
    header.pop("__metadata__", None)
    entries = sorted((_entry(path.name, name, value) for name, value in header.items()), key=lambda entry: entry[1])
    end = 0
    for tensor, begin, until in entries:
        if begin != end or until - begin != tensor.bytes:
            raise CheckpointError(f"{path.name} is corrupt: the data of {tensor.name} is not where it should be")
        end = until
    missing = 8 + length + end - size
    if missing > 0:
        raise CheckpointError(f"{path.name} is truncated: {missing} of {8 + length + end} bytes are missing")
    if missing < 0:
        raise CheckpointError(f"{path.name} is corrupt: {-missing} bytes behind its last tensor")
    yield from (tensor for tensor, _, _ in entries)


def _read_index(path: Path) -> dict[str, str]:
    try:
        mapped = json.loads(path.read_text("utf-8"))["weight_map"]
        if all(isinstance(part, str) for item in mapped.items() for part in item):
            return dict(mapped)
    except (UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError, AttributeError):
        pass
    raise CheckpointError(f"{path.name} is corrupt: it has no weight_map from names to files")


def _entry(file: str, name: str, value: Any) -> tuple[TensorHeader, int, int]:
    try:
        begin, end = value["data_offsets"]
        numbers = [*value["shape"], begin, end]
        if value["dtype"] in BITS and all(type(number) is int and number >= 0 for number in numbers):
            return TensorHeader(name, value["dtype"], tuple(value["shape"]), file), begin, end
    except (KeyError, TypeError, ValueError):
        pass
    raise CheckpointError(f"{file} is corrupt: the header's entry of {name} makes no sense")
