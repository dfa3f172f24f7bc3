"""xgrammar without torch and transformers, which it imports and a process that only compiles never uses.

They would take 200 MiB and seconds of processor time in each such process.
"""

from __future__ import annotations

import sys
import types
from typing import Any

_UNUSED = ("torch", "transformers")


class _Nothing:
    """Stands for every class and function of a module that is not there."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


class _Absent(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing


def import_xgrammar() -> None:
    """Import xgrammar with stand-ins. Only for a process that does nothing else; what is there already stays."""
    if any(name in sys.modules for name in (*_UNUSED, "xgrammar")):
        return
    sys.modules["torch"] = None  # type: ignore[assignment]  # tvm_ffi takes it for missing, and does without
    import tvm_ffi  # noqa: F401

    for name in _UNUSED:
        sys.modules[name] = _Absent(name)
    import xgrammar  # noqa: F401
