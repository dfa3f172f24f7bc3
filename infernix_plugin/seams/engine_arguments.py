"""The engine's configuration: read our settings before a model is loaded, and say that the plugin is active."""

from __future__ import annotations

import functools
import logging
from typing import Any

from infernix_plugin.errors import SettingsError
from infernix_plugin.seams.seam import Seam

logger = logging.getLogger(__name__)


class SettingsRefused(SettingsError, SystemExit):
    """Ends a command line with one line on standard error; everywhere else it is an ordinary exception."""

    def __init__(self, line: str) -> None:
        super().__init__(line)
        self.code = line


def _replace(original: Any) -> Any:
    @functools.wraps(original)
    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        from infernix_plugin import settings
        from infernix_plugin.seams.versions import installed_version

        try:
            settings.configure(self.additional_config)
        except SettingsError as error:
            raise SettingsRefused(f"infernix-plugin: {error}") from None
        logger.info("infernix-plugin is active (vLLM %s)", installed_version())
        config = original(self, *args, **kwargs)
        backend = config.structured_outputs_config.backend
        if backend != "auto":
            logger.warning("The structured outputs backend %r has no effect: infernix-plugin replaces it", backend)
        return config

    return create_engine_config


SEAM = Seam(
    module="vllm.engine.arg_utils",
    attribute="EngineArgs.create_engine_config",
    reason="The first place in the API process that has additional_config; a mistake stops the start.",
    replace=_replace,
    parameters=("self", "usage_context", "headless"),
)
