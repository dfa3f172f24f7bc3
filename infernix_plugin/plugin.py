"""The entry point ``vllm.general_plugins: infernix``. vLLM calls it in every process it starts."""

from __future__ import annotations

import logging

from infernix_plugin.errors import EndsCommandLine, UnsupportedVllmError
from infernix_plugin.seams import versions

LOGGER = "infernix_plugin"


class StartRefused(EndsCommandLine, UnsupportedVllmError):
    """The installed vLLM does not fit."""


def register() -> None:
    """Arrange for every seam to be applied in whichever process imports its module.

    Idempotent and cheap: no vLLM module is imported here. ``INFERNIX_DISABLE=1`` makes it do nothing.

    Raises:
        UnsupportedVllmError: the installed vLLM does not fit; one line says which versions do.
    """
    if versions.disabled():
        return
    try:
        versions.require_supported()
        _join_vllm_log()
        from infernix_plugin import seams

        seams.install()
    except UnsupportedVllmError as error:
        raise StartRefused(str(error)) from None


def _join_vllm_log() -> None:
    """Give our loggers the level and the handlers of vLLM's, which configures nobody else's."""
    ours = logging.getLogger(LOGGER)
    if not ours.handlers:
        ours.parent = logging.getLogger("vllm")
