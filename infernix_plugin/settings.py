"""The plugin's settings: ``additional_config["infernix"]`` first, then ``INFERNIX_*`` variables, then defaults.

``vllm serve MODEL --additional-config '{"infernix": {"cache_bytes": 536870912}}'`` and
``INFERNIX_CACHE_BYTES=536870912 vllm serve MODEL`` say the same.

Variables count where an engine is configured. From there the settings travel with ``additional_config``, so that engine
cores and workers, which may run on machines with other variables, have the same ones.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from infernix_plugin.errors import SettingsError, printable
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.spec_decode.ngram_copy import CopyBounds

logger = logging.getLogger(__name__)

SECTION = "infernix"
VARIABLE_PREFIX = "INFERNIX_"

_DEFAULTS = GrammarOptions()
_COPY_BOUNDS = CopyBounds()


def _variable(name: str) -> str:
    return VARIABLE_PREFIX + name.upper()


class Settings(BaseModel):
    """Everything an operator may set. Sizes are in bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cache_bytes: NonNegativeInt = 256 << 20
    """Memory for compiled grammars, in each process that compiles; a quarter of it more for remembered masks."""
    max_cold_compiles: int = Field(default=2, ge=1, le=64)
    """How many grammars may be compiled at the same time."""
    max_compile_seconds: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    """Processor time of one compile; without ``isolate_compiles`` wall time, and without the wait for its turn."""
    isolate_compiles: bool = True
    """Whether a server compiles in processes of their own, which it ends when they take too long."""
    max_compile_bytes: int = Field(default=1 << 30, ge=64 << 20)
    """Memory of one compile in such a process."""

    grammar_drafts: bool = True
    """Whether drafts that a grammar forces replace the drafter's, where that is possible."""

    ngram_copies: bool = False
    """Whether n-gram copies replace the drafts of rows with a match, and vLLM's own matcher of the method ``ngram``."""
    ngram_min_match: PositiveInt = _COPY_BOUNDS.min_match
    """Fewest tokens that must repeat."""
    ngram_max_match: PositiveInt = _COPY_BOUNDS.max_match
    """Matches count as equally long from here on."""
    ngram_candidates: PositiveInt = _COPY_BOUNDS.candidates
    """Earlier occurrences that are compared, newest first."""
    ngram_window: PositiveInt = _COPY_BOUNDS.window
    """Latest tokens of a request in which matches are sought; at most twice as many are held."""

    tool_constraints: Literal["basic", "automatic"] = "basic"
    """Whether tool calls keep their form and their names in every request with tools (``basic``), or only where a
    request asks for something: a strict tool, a choice of tools, a required call, no calls or one at most."""

    log_requests: bool = True
    """Whether the log gets a line for each constrained request that ended."""

    max_whitespace: NonNegativeInt = _DEFAULTS.max_whitespace
    """Longest run of insignificant whitespace between two JSON tokens."""
    unknown_keywords: Literal["refuse", "ignore"] = "refuse"
    """What an unknown JSON Schema keyword does."""
    max_grammar_bytes: PositiveInt = _DEFAULTS.max_grammar_bytes
    max_schema_bytes: PositiveInt = _DEFAULTS.max_schema_bytes
    max_regex_bytes: PositiveInt = _DEFAULTS.max_regex_bytes
    max_choices: PositiveInt = _DEFAULTS.max_choices
    max_choice_bytes: PositiveInt = _DEFAULTS.max_choice_bytes
    max_nesting: PositiveInt = _DEFAULTS.max_nesting
    max_repetition: PositiveInt = _DEFAULTS.max_repetition
    max_nodes: PositiveInt = _DEFAULTS.max_nodes
    max_intersections: PositiveInt = _DEFAULTS.max_intersections
    max_name_classes: PositiveInt = _DEFAULTS.max_name_classes
    max_string_states: PositiveInt = _DEFAULTS.max_string_states
    max_count_states: PositiveInt = _DEFAULTS.max_count_states
    max_mask_seconds: float = Field(default=_DEFAULTS.max_mask_seconds, gt=0, allow_inf_nan=False)
    max_excess_seconds: float = Field(default=_DEFAULTS.max_excess_seconds, gt=0, allow_inf_nan=False)
    guided_regex_bytes: PositiveInt = 4096
    """Longest ``guided_regex``; ``structured_outputs`` has limits of its own, above."""
    guided_grammar_bytes: PositiveInt = 16 << 10
    guided_schema_bytes: PositiveInt = 16 << 10
    """Longest ``guided_json``, as JSON text."""

    @model_validator(mode="after")
    def _judge_bounds(self) -> Settings:
        if not self.ngram_min_match <= self.ngram_max_match < self.ngram_window:
            raise PydanticCustomError(
                "bounds",
                "ngram_min_match <= ngram_max_match < ngram_window must hold: {least}, {most}, {window}",
                {"least": self.ngram_min_match, "most": self.ngram_max_match, "window": self.ngram_window},
            )
        return self

    def grammar_options(self) -> GrammarOptions:
        """Return the part of the settings that belongs to a compiled grammar's identity."""
        known = {field.name for field in fields(GrammarOptions)}
        return GrammarOptions(**{name: value for name, value in self if name in known})

    def copy_bounds(self) -> CopyBounds:
        """Return the part of the settings that belongs to n-gram copies."""
        return CopyBounds(self.ngram_min_match, self.ngram_max_match, self.ngram_candidates, self.ngram_window)


_VARIABLES = ("INFERNIX_DISABLE", *map(_variable, Settings.model_fields))
_NEARLY = 0.9
"""How alike a variable and a setting are, of 1, for the one to be a slip of the pen for the other."""
_NEARLY_OURS = 0.85
"""The same for the section, which is a short word: two letters of it may have changed places."""


def load(additional_config: object = None, environment: Mapping[str, str] | None = None) -> Settings:
    """Read the settings of one engine.

    Args:
        additional_config: vLLM's ``additional_config``; anything but a mapping holds no section of ours.
        environment: defaults to the process environment.

    Raises:
        SettingsError: one line that names the setting, the value and what is allowed.
    """
    environment = os.environ if environment is None else environment
    given = additional_config if isinstance(additional_config, Mapping) else {}
    for key in given:
        if key != SECTION and _is_nearly_ours(str(key)):
            raise SettingsError(f'additional_config has no section "{printable(str(key))}"; did you mean "{SECTION}"?')
    section = given.get(SECTION, {})
    if not isinstance(section, Mapping):
        raise SettingsError(f'additional_config["{SECTION}"] must be an object, not {type(section).__name__}')
    values: dict[str, Any] = {}
    for name in Settings.model_fields:
        text = environment.get(_variable(name), "").strip()
        if text:
            values[name] = text
    for unknown in _unknown_variables(environment):
        meant = get_close_matches(unknown, _VARIABLES, n=1, cutoff=_NEARLY)
        if meant:
            raise SettingsError(f"there is no setting {unknown}; did you mean {meant[0]}?")
    values.update(section)
    try:
        return Settings.model_validate(values)
    except ValidationError as invalid:
        raise SettingsError("; ".join(_explain(error, section) for error in invalid.errors())) from None


def _is_nearly_ours(key: str) -> bool:
    """Other keys belong to other parts of vLLM."""
    key = key.lower()
    return key.startswith(SECTION) or bool(get_close_matches(key, [SECTION], cutoff=_NEARLY_OURS))


def _unknown_variables(environment: Mapping[str, str]) -> list[str]:
    return sorted(name for name in environment if name.startswith(VARIABLE_PREFIX) and name not in _VARIABLES)


_current: Settings | None = None


def configure(additional_config: object) -> Settings:
    """Load the settings and keep them for this process.

    Raises:
        SettingsError: see :func:`load`.
    """
    loaded = load(additional_config)
    for unknown in _unknown_variables(os.environ):
        logger.warning("The environment variable %s is no setting and has no effect", unknown)
    return _keep(loaded)


def adopt(additional_config: object) -> Settings:
    """Keep for this process the settings with which the engine was configured, whatever its own variables say.

    Raises:
        SettingsError: see :func:`load`.
    """
    return _keep(load(additional_config, {}))


def _keep(settings: Settings) -> Settings:
    global _current
    _current = settings
    return settings


def travelling(additional_config: object, settings: Settings) -> object:
    """Return ``additional_config`` with everything that was set, also by variables, in our section."""
    if not isinstance(additional_config, dict):
        return additional_config
    stated = settings.model_dump(include=settings.model_fields_set)
    return {**additional_config, SECTION: stated} if stated else additional_config


def current() -> Settings:
    """Return the settings of this process: the configured ones, or those of the environment alone."""
    return _current if _current is not None else load()


def _explain(error: Any, section: Mapping[str, Any]) -> str:
    if not error["loc"]:
        return f"settings: {error['msg']}"
    name = str(error["loc"][0])
    if error["type"] == "extra_forbidden":
        meant = get_close_matches(name, Settings.model_fields, n=1, cutoff=_NEARLY)
        advice = f"did you mean {meant[0]}?" if meant else f"known are {', '.join(sorted(Settings.model_fields))}"
        return f'additional_config["{SECTION}"] has no setting {name!r}; {advice}'
    place = f'additional_config["{SECTION}"]["{name}"]' if name in section else _variable(name)
    return f"{place} = {error['input']!r}: {error['msg'][:1].lower()}{error['msg'][1:]}"
