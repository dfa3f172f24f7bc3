"""Which parts of a structural tag become terminals: its regular stretches, as long as they can be made."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from infernix_plugin.framing.phases import Framing
from infernix_plugin.grammar.analysis import nullable, references
from infernix_plugin.grammar.ir import (
    ANY_CHAR,
    EPSILON,
    NEVER,
    Alt,
    Grammar,
    Lexeme,
    Literal,
    Node,
    Repeat,
    Seq,
    alt,
    repeat,
    seq,
)
from infernix_plugin.grammar.json_schema.derivatives import Intersection, Undecided
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.grammar.structural_tag import LeftOut, TagGrammar, is_bare, read


def tag_grammar(form: Any, options: GrammarOptions) -> TagGrammar | None:
    """The grammar of a structural tag whose terminals a longest-match lexer may be able to tell apart.

    Args:
        form: the format of the tag; in front of it there may be open reasoning.
        options: how schemas and regular expressions are read, and limits.

    Returns:
        the grammar, in which the regular stretches of the frame are terminals; ``None`` if the tag is left to xgrammar.

    Raises:
        ConstraintError: a schema in the tag cannot be enforced; the location is a JSON Pointer into the tag.
    """
    framing = _reasoning(form)
    try:
        tag = read(form, options, skipped=0 if framing is None else 2)
        frame = _with_terminals(tag.frame)
    except LeftOut:
        return None
    return replace(tag, frame=frame if framing is None else framing.apply(frame))


def _reasoning(form: Any) -> Framing | None:
    """The reasoning that a format begins with, as tokens up to one that closes it."""
    match form:
        case {
            "type": "sequence",
            "elements": [
                {"type": "any_tokens", "exclude_tokens": [int(close)], **free},
                {"type": "token", "token": int(closing), **one},
                _,
                *_,
            ],
        } if close == closing and not free and not one:
            return Framing(thinking=True, close_id=close, separator="")
    return None


def _with_terminals(frame: Grammar) -> Grammar:
    """The frame of a tag in which every regular stretch is a terminal.

    Raises:
        LeftOut: a stretch may be cut in two ways, and something follows it.
    """
    followed = _followed(frame)
    rules = {name: _terminals(body, last=name not in followed) for name, body in frame.rules.items()}
    return replace(frame, rules=rules)


def _followed(frame: Grammar) -> set[str]:
    """The rules behind which the output may go on."""
    found: set[str] = set()
    pending = [frame.root]
    seen = {frame.root}
    while pending:
        name = pending.pop()
        body = frame.rules[name]
        for used in frame.rules.keys() & references(body):
            is_followed = name in found or _goes_on_behind(body, used)
            if used not in seen or (is_followed and used not in found):
                seen.add(used)
                pending.append(used)
                if is_followed:
                    found.add(used)
    return found


def _goes_on_behind(node: Node, used: str) -> bool:
    """Whether a rule that a node uses may stand where the node goes on behind it."""
    match node:
        case Seq(items):
            return any(used in references(item) for item in items[:-1]) or _goes_on_behind(items[-1], used)
        case Alt(options):
            return any(_goes_on_behind(option, used) for option in options)
        case Repeat(item, _, maximum):
            return used in references(item) if maximum != 1 else _goes_on_behind(item, used)
    return False


def _terminals(node: Node, *, last: bool) -> Node:
    if is_bare(node):
        return _terminal(node, last=last)
    match node:
        case Seq(items):
            stretches: list[list[Node]] = []
            for item in items:
                if is_bare(item) and stretches and is_bare(stretches[-1][-1]):
                    stretches[-1].append(item)
                else:
                    stretches.append([item])
            parts = [seq(*stretch) for stretch in stretches]
            return seq(*(_terminals(part, last=last and part is parts[-1]) for part in parts))
        case Alt(options):
            bare = [option for option in options if is_bare(option)]
            others = [_terminals(option, last=last) for option in options if not is_bare(option)]
            return alt(*([_terminals(alt(*bare), last=last)] if bare else []), *others)
        case Repeat(item, minimum, maximum):
            return Repeat(_terminals(item, last=last and maximum == 1), minimum, maximum)
    return node


def _terminal(node: Node, *, last: bool) -> Node:
    if node in (EPSILON, NEVER):
        return node
    if not last and isinstance(node, Repeat) and (node.minimum, node.maximum) == (0, 1):
        return Repeat(_terminal(node.item, last=False), 0, 1)
    if not last and not _ends_itself(node):
        raise LeftOut
    return Lexeme(node)


@lru_cache(maxsize=1 << 10)
def _ends_itself(node: Node) -> bool:
    """Whether it is proven that no text of a node is the beginning of another."""
    if isinstance(node, Literal):
        return True
    if nullable(node):
        return False
    try:
        return Intersection([seq(node, repeat(ANY_CHAR, 1)), node]).is_empty()
    except Undecided:
        return False
