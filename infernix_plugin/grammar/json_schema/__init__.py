"""JSON Schema to grammar: enforced exactly, or refused with the place and the reason."""

from __future__ import annotations

from collections.abc import Callable

from infernix_plugin.errors import UnsupportedSchema
from infernix_plugin.grammar.ir import Grammar
from infernix_plugin.grammar.json_schema import values
from infernix_plugin.grammar.json_schema.lowering import Lowering
from infernix_plugin.grammar.json_schema.prune import productive_rules, pruned
from infernix_plugin.grammar.json_schema.reader import read
from infernix_plugin.grammar.json_schema.reducer import Overlapping, Reducer
from infernix_plugin.grammar.options import GrammarOptions

__all__ = ["json_object", "lower"]


LoweringFactory = Callable[[Reducer, GrammarOptions], Lowering]


def lower(text: str, options: GrammarOptions, lowering: LoweringFactory = Lowering) -> Grammar:
    """The grammar of the JSON values that satisfy the schema ``text``.

    Members come in declared order, undeclared ones last; between tokens there may be up to
    ``options.max_whitespace`` characters of whitespace, before and after the value none. Strings have canonical
    escapes and numbers bounded length, so the grammar derives one spelling of a value where JSON has endless many.

    Args:
        text: the schema.
        options: how it is read, and limits.
        lowering: makes what writes the rules. It is called again where options of a ``oneOf`` turn out to overlap.

    Raises:
        InvalidSchema: the text is not JSON, or a keyword has a value it cannot have.
        UnsupportedSchema: an assertion that is not enforced, or an unknown keyword.
        UnsatisfiableConstraint: no value satisfies the schema.
        ConstraintTooLarge: a limit of ``options`` is passed.
    """
    document = read(text, options)
    found: list[Overlapping] = []
    overlaps: dict[str, frozenset[tuple[int, int, str]]] = {}
    while True:
        try:
            return lowering(Reducer(document, options, overlaps), options).grammar()
        except Overlapping as overlapping:  # once more, with negations; they may bring further oneOf into sight
            found.append(overlapping)
            for location, pairs in overlapping.overlaps.items():
                overlaps[location] = overlaps.get(location, frozenset()) | pairs
        except UnsupportedSchema as error:
            if not found:
                raise
            raise found[0].refusal() from error


def json_object(options: GrammarOptions) -> Grammar:
    """The grammar of every JSON object, with whitespace and spellings as in :func:`lower`."""
    rules = values.shared_rules(options)
    grammar = Grammar({"root": rules["object"], **rules})
    return pruned(grammar, productive_rules(grammar.rules))
