"""Wrong settings of ``vllm serve``, said before most of vLLM is imported: the engine's arguments come much later."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

from infernix_plugin import settings
from infernix_plugin.errors import SettingsError
from infernix_plugin.seams.versions import disabled

OPTION = "--additional-config"

_CONFIGURES_ENGINES = ("serve", "run-batch")
"""The commands of ``vllm`` that begin with an engine's arguments."""
_SHORTEST = 5
"""Of an abbreviation that argparse takes for the option; shorter ones belong to others, too."""


def refuse() -> None:
    """End ``vllm serve`` and ``vllm run-batch`` with one line if a setting is wrong.

    An entry point of the group ``vllm.platform_plugins``, which vLLM asks first of all. This package is no platform
    (the answer is ``None``, "not mine"). What the command line does not say itself is judged with the engine's
    arguments, and so is what other programs set. The server's own processes have its command line, and judge it again.

    Raises:
        SystemExit: the line. vLLM goes on after any other exception.
    """
    if _is_vllm(sys.argv):
        try:
            judge(sys.argv[2:])
        except SettingsError as error:
            raise SystemExit(f"infernix-plugin: {error}") from None


def judge(options: Sequence[str]) -> None:
    """Judge the settings that options of ``vllm serve`` and the environment give, unless the plugin is off.

    Raises:
        SettingsError: they are wrong. Options in a form that only vLLM reads (a file, dotted keys, no JSON) are not.
    """
    if disabled():
        return
    try:
        *_, stated = {}, *_stated(options)
    except (ValueError, RecursionError):
        return
    settings.load(stated)


def _stated(options: Sequence[str]) -> Iterator[Any]:
    """Yield each value of the option.

    Raises:
        ValueError: some of it is for vLLM alone to read, or help is wanted.
    """
    for index, option in enumerate(options):
        name, equals, text = option.partition("=")
        name = name.replace("_", "-")
        if name == "--":
            return
        abbreviated = len(name) >= _SHORTEST and OPTION.startswith(name) and name != OPTION
        if name in ("--config", "--help", "-h") or name.startswith(f"{OPTION}.") or abbreviated:
            raise ValueError(option)
        if name == OPTION:
            yield json.loads(text if equals else "".join(options[index + 1 : index + 2]))


def _is_vllm(arguments: Sequence[str]) -> bool:
    program = PurePath(arguments[0])
    module = program.parts[-4:] == ("vllm", "entrypoints", "cli", "main.py")
    return (program.name == "vllm" or module) and "".join(arguments[1:2]) in _CONFIGURES_ENGINES
