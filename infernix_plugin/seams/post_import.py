"""Apply seams in whichever process imports their module, and nowhere else.

Importing the API server's modules into an engine core or a worker costs seconds, so nothing is imported here:
a finder in front of ``sys.meta_path`` waits for the import that vLLM itself does.
"""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from infernix_plugin.seams.seam import Seam


def install(seams: Iterable[Seam]) -> None:
    """Apply each seam now if its module is already imported, otherwise when it is imported. Idempotent.

    Raises:
        UnsupportedVllmError: an imported module does not look as expected.
    """
    finder = _finder()
    for seam in seams:
        waiting = finder.waiting.setdefault(seam.module, [])
        if seam not in waiting:
            waiting.append(seam)
        module = sys.modules.get(seam.module)
        if module is not None:
            seam.apply(module)


def is_installed() -> bool:
    """Tell whether seams wait, or were applied, in this process."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


def _finder() -> _Finder:
    for finder in sys.meta_path:
        if isinstance(finder, _Finder):
            return finder
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    return finder


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self) -> None:
        self.waiting: dict[str, list[Seam]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        seams = self.waiting.get(fullname)
        if not seams:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, seams)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    """Loads like the module's own loader, then applies the seams; the module keeps no trace of it."""

    def __init__(self, loader: Any, seams: list[Seam]) -> None:
        self.loader = loader
        self.seams = seams

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self.loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        for seam in self.seams:
            seam.apply(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)
