"""A checkpoint beside the table: what goes where, what is missing, what nobody knows, what has the wrong shape."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infernix_plugin.errors import CheckpointError, bounded
from infernix_plugin.model_executor.weights.headers import TensorHeader, parsed, read_checkpoint, require_file
from infernix_plugin.model_executor.weights.layout import Config, Part, Slot, family_of, slots_of

QUANTISED = "quantization_config"

_PASSED_OVER = (
    "rotary_pos_emb.inv_freq",
    "rotary_emb.inv_freq",
    "rotary_emb.cos_cached",
    "rotary_emb.sin_cached",
)
"""Tensors of older checkpoints, in vLLM's words for what it does not load: they follow from the configuration."""

NAMED = 8
"""Tensors that a message names of each kind of problem; it counts the others."""


@dataclass(frozen=True)
class Inspection:
    """The comparison.

    ``fits``: tensors with the slot that each fills. ``misshapen``: the same, with shapes that differ. ``mistyped``: of
    the right shape, with numbers of a type that is not converted. ``missing``: slots without a tensor. ``unknown``:
    tensors without a slot.
    """

    family: str
    fits: list[tuple[Slot, TensorHeader]]
    misshapen: list[tuple[Slot, TensorHeader]]
    mistyped: list[tuple[Slot, TensorHeader]]
    missing: list[Slot]
    unknown: list[TensorHeader]

    @property
    def complete(self) -> bool:
        """Whether everything is there, and nothing else."""
        return not (self.misshapen or self.mistyped or self.missing or self.unknown)

    def problems(self, parts: Collection[Part] = tuple(Part)) -> list[str]:
        """Say what is wrong with these parts, one line per kind of problem; tensors nobody knows belong to all."""
        missing = [f"{slot.name} {_shape(slot.shape)}" for slot in self.missing if slot.part in parts]
        misshapen = [
            f"{slot.name} is {_shape(tensor.shape)} and should be {_shape(slot.shape)}"
            for slot, tensor in self.misshapen
            if slot.part in parts
        ]
        mistyped = [f"{slot.name} is {tensor.dtype}" for slot, tensor in self.mistyped if slot.part in parts]
        unknown = [bounded(tensor.name) for tensor in self.unknown]
        kinds = {"missing": missing, "wrong shape": misshapen, "wrong type": mistyped, "unknown": unknown}
        return [f"{kind}: {_listed(names)}" for kind, names in kinds.items() if names]


def inspect_checkpoint(directory: Path) -> Inspection:
    """Compare a checkpoint directory with the table. Reads ``config.json``, the index and the files' headers.

    Raises:
        CheckpointError: something cannot be read, the architecture is not in the table, or the checkpoint is quantised,
            so that its tensors are others. One line.
    """
    config = read_config(directory)
    if QUANTISED in config:
        raise CheckpointError(f"config.json has a {QUANTISED}; the table has no quantised checkpoints")
    slots_of(config, ())  # an architecture that nobody knows is said before a file that is missing
    return compare(config, read_checkpoint(directory))


def read_config(directory: Path) -> dict[str, Any]:
    """Return ``config.json``.

    Raises:
        CheckpointError: there is none, or it is no JSON object.
    """
    path = directory / "config.json"
    if not path.exists():
        raise CheckpointError(f"{directory.name} has no config.json")
    require_file(path)
    config = parsed(path.read_bytes(), path.name, "it")
    if not isinstance(config, dict):
        raise CheckpointError(f"config.json of {directory.name} is no JSON object")
    return config


def compare(config: Config, tensors: dict[str, TensorHeader]) -> Inspection:
    """Compare tensors by name with what a configuration asks for.

    Raises:
        CheckpointError: the architecture is not in the table, or the configuration lacks an entry.
    """
    slots = {slot.name: slot for slot in slots_of(config, tensors)}
    both = [(slots[name], tensor) for name, tensor in tensors.items() if name in slots]
    shaped = [(slot, tensor) for slot, tensor in both if slot.shape == tensor.shape]
    return Inspection(
        family=str(family_of(config)),
        fits=[(slot, tensor) for slot, tensor in shaped if slot.takes(tensor.dtype)],
        misshapen=[(slot, tensor) for slot, tensor in both if slot.shape != tensor.shape],
        mistyped=[(slot, tensor) for slot, tensor in shaped if not slot.takes(tensor.dtype)],
        missing=[slot for name, slot in slots.items() if name not in tensors and not slot.optional],
        unknown=[
            tensor
            for name, tensor in tensors.items()
            if name not in slots and not any(part in name for part in _PASSED_OVER)
        ],
    )


def require_parts(directory: Path, parts: Collection[Part], config: Config | None = None) -> None:
    """Refuse a checkpoint that lacks a tensor of these parts, or has one of a wrong shape or that nobody knows.

    Architectures that are not in the table pass, and so do quantised checkpoints, whose tensors have other names.

    Args:
        directory: of the checkpoint.
        parts: what of it is loaded.
        config: what holds in place of its ``config.json``.

    Raises:
        CheckpointError: what is wrong, with names.
    """
    config = read_config(directory) if config is None else config
    if family_of(config) is None or QUANTISED in config:
        return
    problems = compare(config, read_checkpoint(directory)).problems(parts)
    if problems:
        raise CheckpointError(f"the checkpoint {directory.name} does not fit its model: {'; '.join(problems)}")


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _shape(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"
