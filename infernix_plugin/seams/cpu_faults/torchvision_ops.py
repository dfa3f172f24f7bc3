"""A torchvision built for another torch: define the operator schemas that its import needs.

Reason: the registries carry torchvision as a CUDA build only. Beside a CPU build of torch its compiled library does not
load, so ``import torchvision`` dies with "operator torchvision::nms does not exist", and vLLM imports torchvision
through transformers at its start. Only two schemas are missing at import time; nobody on this path calls them.

Fits: every torchvision so far; it does nothing where the compiled library loads, or where there is no torchvision.
Target: the import of ``torchvision``, in every process. ``install()`` costs microseconds and imports neither torch nor
torchvision; the work happens when somebody else imports torchvision.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}

_kept_alive: list[Any] = []  # a torch.library.Library takes its definitions along when it is collected


def install() -> None:
    """Arrange that ``define_missing_operators`` runs right before torchvision is imported. Idempotent."""
    if "torchvision" not in sys.modules and not any(isinstance(finder, _BeforeTorchvision) for finder in sys.meta_path):
        sys.meta_path.insert(0, _BeforeTorchvision())


def define_missing_operators(package: Path) -> list[str]:
    """Define the schemas that torchvision's compiled library in the directory ``package`` would have brought.

    Imports torch. Returns the names that were defined: none where the library loads, or the second time.
    """
    import torch

    for library in (package / f"_C{suffix}" for suffix in EXTENSION_SUFFIXES):
        if library.exists():
            try:
                # What torchvision itself does first; loading twice is harmless.
                torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
            except OSError:
                break
    missing = [name for name in SCHEMAS if not hasattr(torch.ops.torchvision, name)]
    if missing:
        fragment = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
        for name in missing:
            fragment.define(SCHEMAS[name])  # type: ignore[no-untyped-call]
        _kept_alive.append(fragment)
    return missing


class _BeforeTorchvision(MetaPathFinder):
    """Finds torchvision as usual and has it loaded by ``_RepairingLoader``."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torchvision":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None and spec.origin is not None:
            spec.loader = _RepairingLoader(spec.loader, Path(spec.origin).parent)
        return spec


class _RepairingLoader(Loader):
    """Delegates to the loader it wraps, after the repair."""

    def __init__(self, loader: Loader, package: Path) -> None:
        self._loader = loader
        self._package = package

    def __getattr__(self, name: str) -> Any:  # get_source, get_data, ...: whatever tools ask a source loader for
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        define_missing_operators(self._package)
        self._loader.exec_module(module)
