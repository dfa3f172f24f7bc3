"""What safetensors files say they hold: names, types and shapes, read from their headers and their index alone.

A file is eight bytes with the length of its header, the header (JSON) and the data; the format allows no gap, no
overlap and nothing behind the last tensor, so the sizes alone show a truncated or corrupt file.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infernix_plugin.errors import CheckpointError, bounded, excerpt

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
    mapped = _read_index(index) if os.path.lexists(index) else {}
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
    require_file(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
            raise CheckpointError(f"{path.name} is truncated, or is no safetensors file: {size} bytes")
        header = parsed(file.read(length), path.name, "its header", _unrepeated)
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


def require_file(path: Path) -> None:
    """Refuse what is no file that can be opened: absent, a directory, a pipe, a link to nothing or to itself.

    Raises:
        CheckpointError: says which of the two it is.
    """
    if not os.path.isfile(path):
        raise CheckpointError(f"{path.name} is {'no file' if os.path.lexists(path) else 'missing'}")


def parsed(data: bytes, file: str, what: str, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Return the JSON value in ``data``.

    Args:
        data: UTF-8.
        file: its name, and
        what: which part of it this is, for the message.
        pairs: makes a value of the members of an object; a dictionary by default.

    Raises:
        CheckpointError: it is no JSON, or so deep or with numbers so long that Python does not read it.
    """
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=pairs)
    except _Repeated as repeated:
        raise CheckpointError(f"{file} is corrupt: {what} has {repeated} twice") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file} is corrupt: {what} is no JSON: {bounded(str(error))}") from None


class _Repeated(Exception):
    """A member that an object has twice."""


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Repeated(excerpt(next(name for name in names if names.count(name) > 1)))
    return members


def _read_index(path: Path) -> dict[str, str]:
    require_file(path)
    index = parsed(path.read_bytes(), path.name, "it", _unrepeated)
    mapped = index.get("weight_map") if isinstance(index, dict) else None
    if not mapped or not isinstance(mapped, dict) or not all(isinstance(file, str) for file in mapped.values()):
        raise CheckpointError(f"{path.name} is corrupt: it has no weight_map from names to files")
    for file in set(mapped.values()):
        if not file or file != Path(file).name or not file.isprintable():
            raise CheckpointError(f"{path.name} names the file {excerpt(file)}, which is none of the directory's")
    return mapped


def _entry(file: str, name: str, value: Any) -> tuple[TensorHeader, int, int]:
    try:
        begin, end = value["data_offsets"]
        numbers = [*value["shape"], begin, end]
        sound = value["dtype"] in BITS and all(type(number) is int and number >= 0 for number in numbers)
        if sound and name.isprintable():
            return TensorHeader(name, value["dtype"], tuple(value["shape"]), file), begin, end
    except (KeyError, TypeError, ValueError):
        pass
    raise CheckpointError(f"{file} is corrupt: the header's entry of {excerpt(name)} makes no sense")
