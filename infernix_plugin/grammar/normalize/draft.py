"""A grammar while it is being rewritten."""

from __future__ import annotations

from collections.abc import Mapping

from infernix_plugin.grammar.analysis import components, productive
from infernix_plugin.grammar.ir import Alt, Grammar, Node, Ref, Repeat, Seq
from infernix_plugin.grammar.pool import Pool


class Draft:
    """The rules of a grammar as nodes of one pool, to be changed step by step without changing the language."""

    def __init__(self, grammar: Grammar) -> None:
        self.pool = Pool()
        self.root = grammar.root
        alive = productive(grammar)
        useless = {name: self.pool.never for name in grammar.rules if name not in alive}
        self.rules = {
            name: self.pool.substitute(self.pool.adopt(body), useless) for name, body in grammar.rules.items()
        }
        self._fresh = 0
        self.tidy()

    def grammar(self) -> Grammar:
        """The rules as they are now."""
        return Grammar(dict(self.rules), self.root)

    def add(self, hint: str, body: Node) -> str:
        """A new rule; its name begins with ``hint``."""
        name = self.fresh(hint)
        self.rules[name] = body
        return name

    def fresh(self, hint: str) -> str:
        """A name that no rule has."""
        while True:
            self._fresh += 1
            name = f"{hint}~{self._fresh}"
            if name not in self.rules:
                return name

    def tidy(self) -> None:
        """Replace rules that only name another rule or nothing, merge equal rules, drop those out of reach."""
        while True:
            owner: dict[int, str] = {}
            replaced: dict[str, Node] = {}
            for name, body in self.rules.items():
                if name == self.root:
                    continue
                if isinstance(body, Ref) or body is self.pool.epsilon or body is self.pool.never:
                    replaced[name] = body
                elif owner.setdefault(id(body), name) != name:
                    replaced[name] = self.pool.ref(owner[id(body)])
            replaced = {name: _last(body, replaced) for name, body in replaced.items()}
            rules = {
                name: self.pool.substitute(body, replaced) for name, body in self.rules.items() if name not in replaced
            }
            self._keep_reachable(rules)
            if not replaced:
                return

    def _keep_reachable(self, rules: dict[str, Node]) -> None:
        needed = {self.root}
        pending = [self.root]
        while pending:
            found = self.pool.facts(rules[pending.pop()]).references - needed
            needed |= found
            pending.extend(found)
        self.rules = {name: body for name, body in rules.items() if name in needed}

    def order(self, rules: Mapping[str, Node]) -> list[list[str]]:
        """Groups of rules that refer to each other, every group after the groups it refers to."""
        return components(
            {
                name: [other for other in sorted(self.pool.facts(body).references) if other in rules]
                for name, body in rules.items()
            }
        )

    # -- views of a node as a choice of sequences ------------------------------------------------------------------

    def options(self, node: Node) -> list[Node]:
        """The alternatives of ``node``, the empty string of an optional part among them."""
        if isinstance(node, Alt):
            return list(node.options)
        if isinstance(node, Repeat) and (node.minimum, node.maximum) == (0, 1):
            return [self.pool.epsilon, *self.options(node.item)]
        return [node]

    def items(self, node: Node) -> tuple[Node, ...]:
        """The parts of ``node`` in sequence; none for the empty string."""
        if isinstance(node, Seq):
            return node.items
        return () if node is self.pool.epsilon else (node,)


def _last(body: Node, replaced: Mapping[str, Node]) -> Node:
    """Follow rules that only name another rule. They form no cycle: such rules have no language and are gone."""
    while isinstance(body, Ref) and body.name in replaced:
        body = replaced[body.name]
    return body
