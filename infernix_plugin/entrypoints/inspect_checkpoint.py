"""``infernix inspect-checkpoint``: which tensors of a checkpoint go where, and what is missing, without loading it."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from infernix_plugin.model_executor.weights.headers import TensorHeader
from infernix_plugin.model_executor.weights.inspection import Inspection, inspect_checkpoint
from infernix_plugin.model_executor.weights.layout import Part, Slot

WIDTH = 150
"""Columns of the table: what the names of real checkpoints take, even if a terminal has to wrap them."""


def run(directory: Path, *, as_json: bool, every: bool) -> int:
    """Print the inspection; return the exit code: 0 if the checkpoint is complete, otherwise 1.

    Args:
        directory: of the checkpoint.
        as_json: one JSON document in place of a table.
        every: a line for each tensor; otherwise those of equal layers, or experts, share one.

    Raises:
        CheckpointError: it cannot be read, or its architecture is not known.
    """
    inspection = inspect_checkpoint(directory)
    if as_json:
        print(json.dumps(document(inspection), ensure_ascii=False, indent=2))
    else:
        _show(inspection, every)
    return 0 if inspection.complete else 1


def document(inspection: Inspection) -> dict[str, Any]:
    """Return everything as JSON values."""
    return {
        "family": inspection.family,
        "complete": inspection.complete,
        "tensors": [
            {
                "name": slot.name,
                "part": slot.part.value,
                "shape": list(tensor.shape),
                "dtype": tensor.dtype,
                "file": tensor.file,
                "into": slot.into,
                "shard": slot.shard,
            }
            for slot, tensor in inspection.fits
        ],
        "missing": [
            {"name": slot.name, "part": slot.part.value, "shape": list(slot.shape)} for slot in inspection.missing
        ],
        "misshapen": [
            {"name": slot.name, "part": slot.part.value, "shape": list(tensor.shape), "expected": list(slot.shape)}
            for slot, tensor in inspection.misshapen
        ],
        "mistyped": [
            {"name": slot.name, "part": slot.part.value, "dtype": tensor.dtype} for slot, tensor in inspection.mistyped
        ],
        "unknown": [
            {"name": tensor.name, "shape": list(tensor.shape), "file": tensor.file} for tensor in inspection.unknown
        ],
    }


def _show(inspection: Inspection, every: bool) -> None:
    console = Console(highlight=False)
    console.width = max(console.width, WIDTH)
    console.print(f"family {inspection.family}")
    lines = _lines(inspection, every)
    for part in Part:
        tensors = [tensor for slot, tensor in inspection.fits if slot.part == part]
        if not tensors:
            continue
        elements, size = sum(tensor.elements for tensor in tensors), sum(tensor.bytes for tensor in tensors)
        console.print(f"\n{part.value}: {len(tensors)} tensors, {elements:,} parameters, {size / 2**20:,.1f} MiB")
        table = Table("tensor", "", "shape", "type", "goes into", box=None, padding=(0, 2, 0, 0))
        for (of, name, *texts), count in lines.items():
            if of == part:
                table.add_row(Text(name), f"× {count}" if count > 1 else "", *map(Text, texts))
        console.print(table)
    console.print()
    for problem in inspection.problems():
        console.print(Text(problem, style="red"), soft_wrap=True)
    if inspection.complete:
        console.print("complete: nothing is missing, nothing is unknown")


def _lines(inspection: Inspection, every: bool) -> dict[tuple[str, str, str, str, str], int]:
    """Count tensors that differ in numbers of layers and experts only, in the order of the model."""
    lines: dict[tuple[str, str, str, str, str], int] = defaultdict(int)
    for slot, tensor in sorted(inspection.fits, key=_order):
        into = slot.into + (f" [{slot.shard}]" if slot.shard else "")
        texts = (slot.part.value, slot.name, str(list(tensor.shape)), tensor.dtype, into)
        lines[texts if every else tuple(_unnumbered(text) for text in texts)] += 1  # type: ignore[index]
    return lines


def _unnumbered(text: str) -> str:
    return re.sub(r"(?<=[. ])\d+(?=[.\]]|$)", "*", text) if not text.startswith("[") else text


def _order(pair: tuple[Slot, TensorHeader]) -> tuple[int, list[tuple[bool, int, str]]]:
    """Parts in their order, then names, with numbers by value."""
    pieces = [(piece.isdigit(), int(piece) if piece.isdigit() else 0, piece) for piece in pair[0].name.split(".")]
    return list(Part).index(pair[0].part), pieces
