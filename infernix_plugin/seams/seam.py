"""One replaced attribute of vLLM: where it is, why, what it must look like, and what takes its place."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from infernix_plugin.errors import UnsupportedVllmError
from infernix_plugin.seams.versions import SUPPORTED, installed_release, installed_version, refusal

ORIGINAL = "__infernix_original__"
"""Attribute of every replacement: what it replaced. Its presence marks a seam as applied."""


@dataclass(frozen=True)
class Seam:
    """A guarded replacement of ``module.attribute``.

    ``parameters`` are the parameter names the original must have (a class: of its constructor, without ``self``);
    ``members`` are further callables below the target that the replacement overrides or calls, with theirs.
    ``replace`` gets the original and returns the replacement, or the original where nothing has to be replaced; it runs
    right after the module was imported. ``releases`` are those of the supported releases that need it.
    """

    module: str
    attribute: str
    reason: str
    replace: Callable[[Any], Any]
    parameters: tuple[str, ...]
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    releases: tuple[tuple[int, int], ...] = SUPPORTED

    @property
    def target(self) -> str:
        """The full dotted name of the replaced attribute."""
        return f"{self.module}.{self.attribute}"

    def check(self, module: ModuleType) -> Any:
        """Return the original after comparing its name and signatures with what this seam was written for.

        Raises:
            UnsupportedVllmError: the installed vLLM differs; one line says where.
        """
        original = _resolve(module, self.attribute, self.target)
        self._refuse_inherited(module)
        _compare(self.target, original, self.parameters)
        for name, parameters in self.members.items():
            _compare(f"{self.target}.{name}", _resolve(original, name, f"{self.target}.{name}"), parameters)
        return original

    def _refuse_inherited(self, module: ModuleType) -> None:
        """A method that was renamed may still be found in a base class, where nobody calls it any more."""
        holder, _, name = self.attribute.rpartition(".")
        if holder and name not in vars(_resolve(module, holder, self.target)):
            raise UnsupportedVllmError(
                refusal(f"{self.module}.{holder} does not define {name} in vLLM {installed_version()}, it inherits it")
            )

    def applied(self, module: ModuleType) -> bool:
        """Tell whether the replacement is in place."""
        return ORIGINAL in vars(_resolve(module, self.attribute, self.target))

    def apply(self, module: ModuleType) -> None:
        """Put the replacement in place; a second call does nothing.

        Raises:
            UnsupportedVllmError: see :meth:`check`.
        """
        if installed_release() not in self.releases or self.applied(module):
            return
        original = self.check(module)
        replacement = self.replace(original)
        if replacement is original:
            return
        setattr(getattr(replacement, "__func__", replacement), ORIGINAL, original)
        *holders, name = self.attribute.split(".")
        holder: Any = module
        for part in holders:
            holder = getattr(holder, part)
        setattr(holder, name, replacement)
        if inspect.isfunction(original) and not holders and original.__module__ == self.module:
            _rebind(name, original, replacement)


def on_cpu(replace: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Restrict a seam to vLLM's CPU backend. On other devices the second model runner is the default."""

    def replace_on_cpu(original: Any) -> Any:
        from vllm.platforms import current_platform

        return replace(original) if current_platform.is_cpu() else original

    return replace_on_cpu


def _rebind(name: str, original: Any, replacement: Any) -> None:
    """Replace a function where it was imported by name before plugins were loaded, as by the ``vllm`` command."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        if names.get(name) is original:
            names[name] = replacement


def _resolve(holder: Any, dotted: str, target: str) -> Any:
    for part in dotted.split("."):
        try:
            holder = getattr(holder, part)
        except AttributeError:
            raise UnsupportedVllmError(refusal(f"{target} does not exist in vLLM {installed_version()}")) from None
    return holder


def _compare(target: str, found: Any, expected: tuple[str, ...]) -> None:
    names = tuple(inspect.signature(found).parameters)
    if names != expected:
        raise UnsupportedVllmError(
            refusal(f"{target}({', '.join(names)}) of vLLM {installed_version()} should be ({', '.join(expected)})")
        )
