"""The formats of structural tags that can be said in the grammar tree, with the meaning that xgrammar gives them.

Free text goes up to the first text that ends it, a trigger or the end of the tag around it. Formats whose meaning
depends on tokens, and texts that may be cut in more than one place, are left to xgrammar's own reader.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from infernix_plugin.errors import ConstraintError, InvalidRegex, UnsupportedSchema
from infernix_plugin.grammar import json_schema, regex
from infernix_plugin.grammar.analysis import fold, prefixed
from infernix_plugin.grammar.budget import CompileTimeout
from infernix_plugin.grammar.free_text import overlap, text_without
from infernix_plugin.grammar.ir import (
    EPSILON,
    Grammar,
    Lexeme,
    Literal,
    Node,
    Ref,
    alt,
    optional,
    repeat,
    seq,
    words,
)
from infernix_plugin.grammar.options import GrammarOptions

PLAIN = "json"
"""The style of a schema that stands for JSON text. The others are notations for calls."""

_COMMON_REGEX = re.compile(r"(?:[^\\.^$?{}\[\](]|\\[dw]|\[\^?[\w<>/ ]+\]|\((?!\?)|[?](?![?])|\{\d+(?:,\d*)?\})*")
"""Patterns that mean the same in xgrammar's regular expressions and in those of this package."""


class LeftOut(Exception):
    """The tag cannot be said here; xgrammar's own reader takes it."""


@dataclass(frozen=True, slots=True)
class TagGrammar:
    """A tag as a frame around JSON values.

    Attributes:
        frame: what stands around the values. Each :class:`Ref` names a rule of its own, or one of ``values``.
        values: the grammar of each value, by the name of a rule that the frame uses once.
    """

    frame: Grammar
    values: Mapping[str, Grammar]

    def whole(self) -> Grammar:
        """The frame with the values; equal ones are there once."""
        rules = dict(self.frame.rules)
        prefixes: dict[int, str] = {}
        for name, value in self.values.items():
            if id(value) not in prefixes:
                prefixes[id(value)] = f"schema{len(prefixes)}"
                rules.update(prefixed(value, prefixes[id(value)]))
            rules[name] = Ref(f"{prefixes[id(value)]}_{value.root}")
        return Grammar(rules, self.frame.root)


def read(form: Any, options: GrammarOptions, *, skipped: int = 0) -> TagGrammar:
    """Read the format of a structural tag.

    Args:
        form: the format.
        options: how schemas and regular expressions are read, and limits.
        skipped: so many elements of a sequence are left out at its beginning.

    Raises:
        LeftOut: it needs xgrammar's own reader, also if only that one can say what is wrong.
        ConstraintError: a schema in it cannot be enforced; the location is a JSON Pointer into the tag.
    """
    reader = _Reader(options)
    try:
        if skipped:
            elements = reader.elements(form, "#/format", last=True, skipped=skipped)
            root = reader.rule(seq(*elements))
        else:
            root = reader.rule(reader.node(form, "#/format", last=True))
    except (KeyError, TypeError, AttributeError, RecursionError):
        raise LeftOut from None
    return TagGrammar(Grammar(reader.rules, root.name), reader.values)


def schema_grammar(form: Mapping[str, Any], place: str, options: GrammarOptions) -> Grammar:
    """The grammar of a format ``json_schema`` in the plain style, at its place in the tag.

    Raises:
        ConstraintError: it cannot be enforced; the location is a JSON Pointer into the tag.
    """
    if form.get("excludes"):
        raise UnsupportedSchema("A schema with excluded texts is not supported.", location=f"{place}/excludes")
    if form.get("any_order"):
        raise UnsupportedSchema(
            "Members in any order would be enforced neither as required nor as single.", location=f"{place}/any_order"
        )
    spaces = form.get("max_whitespace_cnt")
    if type(spaces) is int and 0 <= spaces < options.max_whitespace:
        options = replace(options, max_whitespace=spaces)
    try:
        built = json_schema.lower(json.dumps(form["json_schema"], ensure_ascii=False), options)
        if built.unique is not None:
            raise UnsupportedSchema(
                "uniqueItems is not enforced inside a structural tag.",
                location="#",
                hint="Give the items an enum of a few values, or set maxItems to 1.",
            )
    except CompileTimeout:
        raise
    except ConstraintError as error:
        inside = error.location if (error.location or "").startswith("#") else "#"
        error.location = f"{place}/json_schema{(inside or '#')[1:]}"
        raise
    return built


class _Reader:
    """Reads formats into rules. A format ``last`` is the end of the output; one ``inside`` is in a tag."""

    def __init__(self, options: GrammarOptions) -> None:
        self.rules: dict[str, Node] = {}
        self.values: dict[str, Grammar] = {}
        self._options = options
        self._known: dict[str, Grammar] = {}
        self._made = 0

    def rule(self, body: Node | None = None) -> Ref:
        """A new rule of the frame."""
        name = f"frame{self._made}"
        self._made += 1
        if body is not None:
            self.rules[name] = body
        return Ref(name)

    def node(self, form: Mapping[str, Any], place: str, *, inside: bool = False, last: bool = False) -> Node:
        """What a format matches."""
        match form["type"]:
            case "const_string":
                return Literal(_text(form["value"]))
            case "regex":
                return self._regex(form["pattern"])
            case "json_schema":
                return self._schema(form, place)
            case "any_text":
                return self._any_text(form, inside, last)
            case "tag":
                return self._tag(form, place)
            case "sequence":
                return seq(*self.elements(form, place, inside=inside, last=last))
            case "or":
                parts = enumerate(_filled(form["elements"]))
                return alt(*(self.node(part, f"{place}/elements/{at}", inside=inside, last=last) for at, part in parts))
            case "optional":
                return optional(self.node(form["content"], f"{place}/content", inside=inside, last=last))
            case "star":
                return repeat(self.node(form["content"], f"{place}/content", inside=inside))
            case "plus":
                return repeat(self.node(form["content"], f"{place}/content", inside=inside), 1)
            case "repeat":
                return self._repeat(form, place, inside)
            case "tags_with_separator":
                return self._separated(form, place)
            case "triggered_tags" | "dispatch" if last:
                return self._free(form, place, ())
        raise LeftOut

    def _regex(self, pattern: str) -> Node:
        if not _COMMON_REGEX.fullmatch(pattern):
            raise LeftOut
        try:
            return regex.parse(pattern, self._options)
        except InvalidRegex:
            raise LeftOut from None

    def _schema(self, form: Mapping[str, Any], place: str) -> Node:
        if form.get("style", PLAIN) != PLAIN:
            raise LeftOut
        key = json.dumps([form["json_schema"], form.get("max_whitespace_cnt")])
        if key not in self._known:
            self._known[key] = schema_grammar(form, place, self._options)
        name = f"value{len(self.values)}"
        self.values[name] = self._known[key]
        return Ref(name)

    def _any_text(self, form: Mapping[str, Any], inside: bool, last: bool) -> Node:
        if inside or form.get("max_tokens") is not None or form.get("max_chars") is not None:
            raise LeftOut
        excluded = _texts(form.get("excludes", []))
        if not last and overlap(excluded):
            raise LeftOut
        return text_without(excluded)

    def _tag(self, form: Mapping[str, Any], place: str, begun: str = "") -> Node:
        """A tag, of whose beginning so much is written."""
        if form.get("type", "tag") != "tag":
            raise LeftOut
        begin = _text(form["begin"])
        ends = [form["end"]] if isinstance(form["end"], str) else _filled(form["end"])
        body = self._until(form["content"], f"{place}/content", tuple(dict.fromkeys(_texts(ends))))
        body = seq(Literal(begin.removeprefix(begun)), body)
        return body if is_bare(body) else self.rule(body)

    def _until(self, form: Mapping[str, Any], place: str, ends: tuple[str, ...]) -> Node:
        """What a format matches that is the content of a tag, and the end of that tag."""
        match form["type"]:
            case "any_text":
                if form.get("max_tokens") is not None or form.get("max_chars") is not None:
                    raise LeftOut
                patterns = {*ends, *_texts(form.get("excludes", []))}
                if overlap(patterns):
                    raise LeftOut
                return seq(text_without(patterns), words(ends))
            case "triggered_tags":
                return self._free(form, place, ends)
            case "sequence":
                *before, final = _filled(form["elements"])
                parts = [self.node(part, f"{place}/elements/{at}", inside=True) for at, part in enumerate(before)]
                return seq(*parts, self._until(final, f"{place}/elements/{len(before)}", ends))
            case "or":
                parts = [
                    self._until(part, f"{place}/elements/{at}", ends)
                    for at, part in enumerate(_filled(form["elements"]))
                ]
                return alt(*parts)
        return seq(self.node(form, place, inside=True), words(ends))

    def elements(
        self, form: Mapping[str, Any], place: str, *, inside: bool = False, last: bool = False, skipped: int = 0
    ) -> Iterable[Node]:
        """What each of the elements of a sequence matches, but for so many at the beginning."""
        *before, final = _filled(form["elements"])
        for at, part in list(enumerate(before))[skipped:]:
            following = form["elements"][at + 1]
            if last and at + 1 == len(before) and _is_absorbed(part, following):
                continue
            yield self.node(part, f"{place}/elements/{at}", inside=inside)
        yield self.node(final, f"{place}/elements/{len(before)}", inside=inside, last=last)

    def _repeat(self, form: Mapping[str, Any], place: str, inside: bool) -> Node:
        least, most = form["min"], form["max"]
        if type(least) is not int or type(most) is not int or least < 0 or (most != -1 and most < least):
            raise LeftOut
        if max(least, most) > self._options.max_repetition:
            raise LeftOut
        content = self.node(form["content"], f"{place}/content", inside=inside)
        return repeat(content, least, None if most == -1 else most)

    def _separated(self, form: Mapping[str, Any], place: str) -> Node:
        tags = [self._tag(tag, f"{place}/tags/{at}") for at, tag in enumerate(_filled(form["tags"]))]
        one, separator = alt(*tags), Literal(_text(form["separator"]))
        several = one if _flag(form, "stop_after_first") else seq(one, repeat(seq(separator, one)))
        return several if _flag(form, "at_least_one") else optional(several)

    def _free(self, form: Mapping[str, Any], place: str, ends: tuple[str, ...]) -> Node:
        """Free text with what its triggers call for, and the end of the tag around it if there is one."""
        excluded = _texts(form.get("excludes", []))
        if form["type"] == "dispatch":
            begun = {_text(pattern): self.node(part, f"{place}/rules/{at}/1") for at, (pattern, part) in _rules(form)}
            again, at_once = _flag(form, "loop", default=True), False
        else:
            begun = self._triggered(form, place)
            again, at_once = not _flag(form, "stop_after_first"), _flag(form, "at_least_one")
        patterns = [*begun, *excluded, *ends]
        if overlap(patterns) or len(set(patterns)) < len(patterns):
            raise LeftOut
        end = words(ends) if ends else EPSILON
        whole = self.rule()
        behind = whole if again else end
        text = text_without(patterns)
        begun = {trigger: part if is_bare(part) else self.rule(part) for trigger, part in begun.items()}
        parts = [seq(Literal(trigger), part, behind) for trigger, part in begun.items()]
        self.rules[whole.name] = alt(seq(text, end), *(seq(text, part) for part in parts))
        return alt(*parts) if at_once else whole

    def _triggered(self, form: Mapping[str, Any], place: str) -> dict[str, Node]:
        """What follows each trigger."""
        found: dict[str, list[Node]] = {_text(trigger): [] for trigger in _filled(form["triggers"])}
        for at, tag in enumerate(_filled(form["tags"])):
            triggers = [trigger for trigger in found if _text(tag["begin"]).startswith(trigger)]
            if len(triggers) != 1:
                raise LeftOut
            found[triggers[0]].append(self._tag(tag, f"{place}/tags/{at}", triggers[0]))
        return {trigger: alt(*_filled(tags)) for trigger, tags in found.items()}


def is_bare(node: Node) -> bool:
    """Whether no rule is named and no terminal is made yet: the node is regular and may be joined with others."""
    return fold(node, lambda part, below: not isinstance(part, Ref | Lexeme) and all(below))


def _is_absorbed(part: Any, following: Any) -> bool:
    """Whether an optional text in front of free text is free text too."""
    if part["type"] != "optional" or part["content"]["type"] != "const_string":
        return False
    if following["type"] not in ("any_text", "triggered_tags", "dispatch") or following.get("at_least_one"):
        return False
    triggers = following.get("triggers", []) + [rule[0] for rule in following.get("rules", [])]
    patterns = [*triggers, *following.get("excludes", [])]
    value = _text(part["content"]["value"])
    return following.get("max_chars") is None and not any(char in pattern for pattern in patterns for char in value)


def _rules(form: Mapping[str, Any]) -> Iterable[tuple[int, Any]]:
    rules = _filled(form["rules"])
    if len({rule[0] for rule in rules}) < len(rules):
        raise LeftOut
    return enumerate(rules)


def _text(value: Any) -> str:
    if not isinstance(value, str) or any("\ud800" <= char <= "\udfff" for char in value):
        raise LeftOut
    return value


def _flag(form: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    value = form.get(name, default)
    if not isinstance(value, bool):
        raise LeftOut
    return value


def _texts(values: Any) -> list[str]:
    if not isinstance(values, list):
        raise LeftOut
    return [_text(value) for value in values]


def _filled(values: Any) -> list[Any]:
    if not isinstance(values, list) or not values:
        raise LeftOut
    return values
