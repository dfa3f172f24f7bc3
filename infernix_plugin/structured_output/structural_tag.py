"""Structural tags and Lark grammars, which users and tool parsers of vLLM send; their meaning is that of xgrammar."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from infernix_plugin.errors import InvalidGrammar
from infernix_plugin.framing.phases import SEPARATOR, Framing

TYPE = "structural_tag"
_RAW = "infernix_raw"


@dataclass(frozen=True, slots=True)
class StructuralTag:
    """A structural tag as JSON text in xgrammar's present form.

    Attributes:
        text: the JSON text.
        raw: whether all new text is content, whatever the prompt ends with.
        older: whether it was sent in the older form.
    """

    text: str
    raw: bool = False
    older: bool = False

    def carried(self) -> str:
        """Return the JSON text that :func:`from_json` reads."""
        return json.dumps({**json.loads(self.text), _RAW: self.raw}, ensure_ascii=False)

    def after(self, framing: Framing) -> StructuralTag:
        """Return the tag for an output that may have to end its reasoning first."""
        if framing.close_id is None:
            return self
        elements = [
            {"type": "any_tokens", "exclude_tokens": [framing.close_id]},
            {"type": "token", "token": framing.close_id},
            {"type": "optional", "content": {"type": "const_string", "value": SEPARATOR}},
            json.loads(self.text)["format"],
        ]
        return _tag({"type": "sequence", "elements": elements})

    def place(self, location: str | None, framing: Framing) -> str | None:
        """Return where in the tag as it was sent that is which is at ``location`` in the one of :meth:`after`."""
        if location is None:
            return None
        if framing.close_id is not None:
            location = location.replace("#/format/elements/3", "#/format", 1)
        return older_place(location) if self.older else location


def from_json(text: str) -> StructuralTag:
    """Read a structural tag, also in the older form with ``structures`` and ``triggers``.

    Raises:
        InvalidGrammar: it is no JSON object with a format.
    """
    try:
        tag = json.loads(text)
        return replace(_tag(present_form(tag)), raw=tag.get(_RAW) is True, older="format" not in tag)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidGrammar("The structural tag is not a JSON object with a format.") from error


def older_place(location: str) -> str:
    """Return where in the older form that is which is at a location in the present one."""
    place = location.replace("#/format/tags", "#/structures", 1).replace("content/json_schema", "schema", 1)
    return "#" if place.startswith("#/format") else place


def from_lark(text: str) -> StructuralTag | None:
    """Read a Lark grammar; ``None`` if xgrammar says that the text is none."""
    import xgrammar

    try:
        ebnf = str(xgrammar.Grammar.from_lark(text))
    except (RuntimeError, ValueError):
        return None
    return _tag({"type": "grammar", "grammar": ebnf})


def _tag(form: dict[str, Any]) -> StructuralTag:
    return StructuralTag(json.dumps({"type": TYPE, "format": form}, ensure_ascii=False))


def present_form(tag: dict[str, Any]) -> dict[str, Any]:
    """Return the format of a tag that may have the older form.

    Raises:
        KeyError, TypeError: a member is missing, or is something else.
    """
    if "format" in tag:
        form: dict[str, Any] = tag["format"]
        return form
    tags = [
        {
            "type": "tag",
            "begin": structure["begin"],
            "content": {"type": "json_schema", "json_schema": structure["schema"]},
            "end": structure["end"],
        }
        for structure in tag["structures"]
    ]
    return {"type": "triggered_tags", "triggers": tag["triggers"], "tags": tags}
