"""The n-gram table, read in place from the safetensors files of the checkpoint.

In the released model it has 51 billion entries, of which a token reads a few thousand. Its shards are mapped into
memory and never copied: the kernel loads the pages that are touched and drops them when memory is short, and processes
on one machine share them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
_SHARD = re.compile(r"ngram_embedding\.(?:shard_(\d+)\.)?weight$")


class NgramTable:
    """Rows of one n-gram layer, spread over shards that lie behind each other in the order of their numbers."""

    def __init__(self, shards: Sequence[Tensor]) -> None:
        """``shards``: ``[rows, width]`` each, of one width and type."""
        self.shards = tuple(shards)
        self.starts = np.cumsum([0, *(len(shard) for shard in shards)])

    @classmethod
    def map(cls, directory: Path, layer: int, rows: int) -> NgramTable:
        """Map the table of decoder layer ``layer``, from zero, which needs ``rows`` rows or more.

        Raises:
            ValueError: shards are missing, of a type that is not supported, or have too few rows.
        """
        found = dict(_shards(directory, layer))
        missing = sorted(set(range(len(found))) - set(found))
        if not found or missing:
            raise ValueError(
                f"the checkpoint in {directory} lacks shards of the n-gram table of layer {layer}: "
                f"{f'{len(found)} are there, missing are {missing}' if found else 'there is none'}"
            )
        table = cls([found[number] for number in range(len(found))])
        if table.starts[-1] < rows:
            raise ValueError(f"the n-gram table of layer {layer} has {table.starts[-1]} rows, its hash needs {rows}")
        return table

    def __getitem__(self, rows: Tensor) -> Tensor:
        """Return the entries ``[..., width]`` of ``rows``, int64 ``[...]``: one read per shard that is touched."""
        flat = rows.flatten()
        width = self.shards[0].size(1)
        if len(self.shards) == 1 or not len(flat):
            return self.shards[0][flat].view(*rows.shape, width)
        wanted = flat.numpy()
        number = np.searchsorted(self.starts, wanted, side="right") - 1
        order = number.argsort()
        touched, firsts = np.unique(number[order], return_index=True)
        read = torch.empty(len(wanted), width, dtype=self.shards[0].dtype)
        for shard, places in zip(touched.tolist(), np.split(order, firsts[1:]), strict=True):
            inside = torch.from_numpy(wanted[places] - self.starts[shard])
            read.index_copy_(0, torch.from_numpy(places), self.shards[shard].index_select(0, inside))
        return read.view(*rows.shape, width)


def is_shard(name: str) -> bool:
    """Tell whether a tensor of a checkpoint belongs to an n-gram table, by its name."""
    return ".ple." in name and _SHARD.search(name) is not None


def _shards(directory: Path, layer: int) -> Iterator[tuple[int, Tensor]]:
    for path in _files(directory):
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
        wanted = [name for name in header if is_shard(name) and f".layers.{layer}." in f".{name}"]
        if not wanted:
            continue
        storage = torch.UntypedStorage.from_file(str(path), shared=False, nbytes=path.stat().st_size)
        assert isinstance(storage, torch.UntypedStorage)
        for name in wanted:
            match = _SHARD.search(name)
            assert match is not None
            yield int(match[1] or 0), _view(storage, header[name], 8 + size, name)


def _files(directory: Path) -> list[Path]:
    index = directory / "model.safetensors.index.json"
    if index.exists():
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        return [directory / name for name in sorted(names)]
    return sorted(directory.glob("*.safetensors"))


def _view(storage: torch.UntypedStorage, entry: dict[str, Any], base: int, name: str) -> Tensor:
    if entry["dtype"] not in _DTYPES:
        raise ValueError(f"{name} is stored as {entry['dtype']}; on the CPU it must be one of {', '.join(_DTYPES)}")
    dtype = _DTYPES[entry["dtype"]]
    rows, width = entry["shape"]
    first, between = divmod(base + entry["data_offsets"][0], dtype.itemsize)
    if between:
        raise ValueError(
            f"{name} begins between two of its numbers, at byte {base + entry['data_offsets'][0]} of its file, so it "
            "cannot be mapped; load the file with the safetensors library and save it again"
        )
    return torch.empty(0, dtype=dtype).set_(storage, first, (rows, width), (width, 1))
