"""From vLLM's ``StructuredOutputsParams`` to what is compiled; the API process and the engine core both use this."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from infernix_plugin import settings
from infernix_plugin.errors import ConflictingConstraints, ConstraintError, InvalidGrammar, InvalidSchema
from infernix_plugin.grammar import lark
from infernix_plugin.grammar.choice import check_number
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.structured_output import framed_output, structural_tag
from infernix_plugin.structured_output.framed_output import FramedOutput
from infernix_plugin.structured_output.structural_tag import StructuralTag

Asked = OutputConstraint | StructuralTag | FramedOutput


BACKEND = "infernix"
"""What a validated request carries to the engine core as its backend."""
DELEGATED = "infernix-delegated"
"""The same, if one of vLLM's parsers will take the output apart."""


def is_delegated(params: Any) -> bool:
    """Return whether one of vLLM's parsers will take the output apart."""
    return bool(params._backend == DELEGATED)


def asked_of(params: Any) -> Asked:
    """Return what ``params`` (vLLM's ``StructuredOutputsParams``) asks for. The source is kept, not judged.

    Raises:
        ConflictingConstraints: an option that this plugin would have to ignore.
        ConstraintTooLarge: more choices than ``max_choices``.
        InvalidSchema, InvalidGrammar: the value is empty, so that it is no constraint at all.
    """
    _refuse_ignored_options(params)
    if params.json is not None:
        if isinstance(params.json, str) and not params.json.strip():
            raise InvalidSchema("The JSON Schema is empty.")
        return OutputConstraint.json_schema(params.json)
    if params.json_object is not None:
        if not params.json_object:
            raise InvalidSchema("json_object must be true if it is given.", hint="Leave it out for free text.")
        return OutputConstraint.json_object()
    if params.regex is not None:
        return OutputConstraint.regex(params.regex)
    if params.choice is not None:
        check_number(params.choice, settings.current().grammar_options())
        return OutputConstraint.choice(params.choice)
    if params.grammar is not None:
        return grammar_of(params.grammar)
    if params.structural_tag is not None:
        return _tagged(params.structural_tag)
    raise ConflictingConstraints("A structured_outputs object must hold one constraint.")


def field_of(params: Any) -> str:
    """Return the name of the field of ``params`` that holds the constraint."""
    for name in ("json", "json_object", "regex", "choice", "grammar", "structural_tag"):
        if getattr(params, name) is not None:
            return name
    return ""


def kind_of(asked: Asked) -> str:
    """Return the observed kind."""
    match asked:
        case StructuralTag():
            return structural_tag.TYPE
        case FramedOutput(_, None):
            return framed_output.TOOLS
        case FramedOutput(_, OutputConstraint(kind)) | OutputConstraint(kind):
            return kind.value
    raise TypeError(f"{type(asked).__name__} is nothing that can be asked")


def observed_kind(params: Any) -> str:
    """Return the kind of a constraint that may be none: where it cannot be read, the field that holds it."""
    try:
        return kind_of(asked_of(params))
    except ConstraintError:
        return {"json": "json_schema"}.get(field_of(params), field_of(params))


def _tagged(text: str) -> Asked:
    return (framed_output.read(text) if framed_output.TYPE in text else None) or structural_tag.from_json(text)


def grammar_of(text: str) -> OutputConstraint | StructuralTag:
    """Return what a grammar, GBNF or Lark, asks for.

    Raises:
        InvalidGrammar: the text is empty.
    """
    if not text.strip():
        raise InvalidGrammar("The grammar is empty.", hint="It must define the rule root.")
    if lark.looks_like_lark(text) and not _is_readable_lark(text, settings.current().grammar_options()):
        # xgrammar's own reader knows %ignore and regex flags, and vLLM's users rely on it. Where it too refuses the
        # text, the error of our reader, which has a place, is the one to show.
        return structural_tag.from_lark(text) or OutputConstraint.grammar(text)
    return OutputConstraint.grammar(text)


@lru_cache(maxsize=64)  # every request asks, and parsing is linear in the text
def _is_readable_lark(text: str, options: GrammarOptions) -> bool:
    try:
        lark.parse(text, options)
    except InvalidGrammar:
        return False
    except ConstraintError:
        return True  # it is Lark, and the compiler will say what is wrong with it
    return True


def _refuse_ignored_options(params: Any) -> None:
    refused = {
        "whitespace_pattern": "Set max_whitespace in the server's settings, or describe the whitespace in a grammar.",
        "disable_any_whitespace": "Set max_whitespace to 0 in the server's settings.",
        "disable_additional_properties": "Write additionalProperties: false into the schema.",
    }
    for name, hint in refused.items():
        if getattr(params, name, None):
            place = f"structured_outputs.{name}"
            raise ConflictingConstraints(f"{place} is not supported.", location=place, hint=hint)
