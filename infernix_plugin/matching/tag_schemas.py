"""JSON Schemas in structural tags that xgrammar reads: replaced by grammars of our own, or known to be enforced.

xgrammar reads a schema more loosely than it is meant: it passes over keywords that it does not enforce. So each is
compiled as everywhere else, or refused with its place, and the tag has a grammar where it had the schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from infernix_plugin.errors import ConstraintTooLarge, UnsupportedSchema
from infernix_plugin.grammar.emit import emit
from infernix_plugin.grammar.ir import Grammar
from infernix_plugin.grammar.normalize import normalize
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.grammar.structural_tag import PLAIN, schema_grammar
from infernix_plugin.matching.engines.rehearsal import MAX_RULES, check_size
from infernix_plugin.matching.tag_formats import with_parts
from infernix_plugin.matching.tag_notations import check_anchors, check_notation
from infernix_plugin.matching.terminals import with_equal_exclusions


def with_own_schemas(tag: Mapping[str, Any], options: GrammarOptions) -> str:
    """Return the JSON text of a structural tag with grammars in the place of JSON Schemas.

    Args:
        tag: in the present form.
        options: how schemas are read, and limits.

    Raises:
        ConstraintError: a schema cannot be enforced here; the location is a JSON Pointer into the tag.
    """
    return json.dumps({**tag, "format": _Schemas(options).replaced(tag["format"], "#/format")}, ensure_ascii=False)


class _Schemas:
    def __init__(self, options: GrammarOptions) -> None:
        self._options = options
        self._rules = 0

    def replaced(self, form: Any, place: str) -> Any:
        if not isinstance(form, Mapping):
            return form
        if form.get("type") == "json_schema" and "json_schema" in form and form.get("style", PLAIN) == PLAIN:
            built = schema_grammar(form, place, self._options)
            return {"type": "grammar", "grammar": self._written(built, f"{place}/json_schema")}
        if form.get("type") in ("json_schema", "qwen_xml_parameter"):
            check_notation(form, place, self._options)
            return form
        if form.get("type") == "regex":
            check_anchors(form.get("pattern"), f"{place}/pattern")
        return with_parts(form, lambda key, part: self.replaced(part, f"{place}/{key}"))

    def _written(self, built: Grammar, place: str) -> str:
        try:
            normal = normalize(with_equal_exclusions(built))
            check_size(normal)
            self._rules += len(normal.rules)
            if self._rules > MAX_RULES:
                raise ConstraintTooLarge(
                    f"the schemas of the tag need more than {MAX_RULES} rules",
                    location=place,
                    hint="Texts around the schemas that are told apart by their first characters need fewer.",
                )
            return emit(normal)
        except ValueError:
            raise UnsupportedSchema(
                "The schema is not enforced here: it needs two conditions on one value at once.",
                location=place,
                hint="Give it as the response format, or write one condition that says both.",
            ) from None
