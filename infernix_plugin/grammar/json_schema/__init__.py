"""JSON Schema to grammar: enforced exactly, or refused with the place and the reason."""

from __future__ import annotations

from collections.abc import Callable

from infernix_plugin.errors import UnsupportedSchema
from infernix_plugin.grammar.ir import Grammar
from infernix_plugin.grammar.json_schema import values
from infernix_plugin.grammar.json_schema.lowering import Lowering
from infernix_plugin.grammar.json_schema.prune import productive_rules, pruned
from infernix_plugin.grammar.json_schema.reader import read
from infernix_plugin.grammar.json_schema.reducer import Reducer
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
        lowering: makes what writes the rules. It is called again to tell why a schema is refused.

    Raises:
        InvalidSchema: the text is not JSON, or a keyword has a value it cannot have.
        UnsupportedSchema: an assertion that is not enforced, or an unknown keyword.
        UnsatisfiableConstraint: no value satisfies the schema.
        ConstraintTooLarge: a limit of ``options`` is passed.
    """
    document = read(text, options)
    reducer = Reducer(document, options)
    try:
        return lowering(reducer, options).grammar()
    except UnsupportedSchema as error:
        if not reducer.has_overlaps:
            raise
        # Is it the negation that is not supported, which the schema does not mention, or anything that it does?
        lowering(Reducer(document, options, tells_apart=False), options).grammar()
        raise reducer.refusal() from error


def json_object(options: GrammarOptions) -> Grammar:
    """The grammar of every JSON object, with whitespace and spellings as in :func:`lower`."""
    rules = values.shared_rules(options)
    grammar = Grammar({"root": rules["object"], **rules})
    return pruned(grammar, productive_rules(grammar.rules))
