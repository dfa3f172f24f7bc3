"""A custom tool, which takes one text: its grammar is that of the text in the one argument of its calls."""

from __future__ import annotations

from infernix_plugin.errors import ConstraintTooLarge, InvalidGrammar, UnsatisfiableConstraint
from infernix_plugin.framing.tools.encoding import TEXT, Encoding
from infernix_plugin.framing.tools.markup import FUNCTION_ENDING, argument_heading, is_writable, text_value
from infernix_plugin.grammar.analysis import dependency_order, fold, is_regular, nodes, references
from infernix_plugin.grammar.build import build
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.grammar.ir import Grammar, Lexeme, Node, Ref, rebuilt, seq
from infernix_plugin.grammar.options import GrammarOptions

INPUT = "input"
"""The argument that holds the text, as vLLM's servers name it."""


def text_argument(text: OutputConstraint, options: GrammarOptions) -> tuple[Grammar, dict[str, Encoding]]:
    """The grammar of the one argument whose value ``text`` describes, and how it is written.

    Texts that hold the line that ends a value have no written form, and are left out.

    Raises:
        ConstraintError: as for the constraint; also if a rule of it leads to itself, or if no text is left.
    """
    language = _whole(build(text, options), options)
    if not is_writable(language):
        raise UnsatisfiableConstraint(
            "The only texts that are allowed hold the line that ends a value, so they cannot be written"
        )
    return Grammar({"root": seq(argument_heading(INPUT), text_value(language), FUNCTION_ENDING)}), {INPUT: TEXT}


def _whole(grammar: Grammar, options: GrammarOptions) -> Node:
    """The grammar as one expression, which the end of the value can be kept out of."""
    bodies: dict[str, Node] = {}
    sizes: dict[str, int] = {}
    for group in dependency_order(grammar.rules):
        for name in group:
            body = grammar.rules[name]
            below = references(body)
            if any(reference not in bodies for reference in below):
                continue  # it leads to itself, or to a rule that does
            sizes[name] = nodes(body) + sum(sizes[reference] for reference in below)
            if sizes[name] > options.max_nodes:
                raise ConstraintTooLarge(
                    f"written out, the grammar has more than {options.max_nodes} nodes (max_nodes)"
                )
            bodies[name] = _written_out(body, bodies)
    root = bodies.get(grammar.root)
    if root is None or not is_regular(root):
        raise InvalidGrammar(
            "The grammar of a custom tool can have no rule that leads to itself, and no token by its id.",
            hint="Write repetition with * or +.",
        )
    return root


def _written_out(body: Node, bodies: dict[str, Node]) -> Node:
    def replaced(node: Node, below: list[Node]) -> Node:
        return bodies[node.name] if isinstance(node, Ref) else rebuilt(node, below)

    return fold(body, replaced, Lexeme)
