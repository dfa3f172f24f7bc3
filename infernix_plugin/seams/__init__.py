"""Every attribute of vLLM that this plugin replaces: one small module each, all of them in :data:`ALL`.

Importing this package imports nothing else: one of its modules is imported at every start of Python in environments
that need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infernix_plugin.seams.seam import Seam as Seam
    from infernix_plugin.seams.table import ALL as ALL
    from infernix_plugin.seams.table import install as install

__all__ = ["ALL", "Seam", "install"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from infernix_plugin.seams import table

    return getattr(table, name)
