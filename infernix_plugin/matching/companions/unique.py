"""The companion for ``uniqueItems``: it follows the output and takes out of the masks what would repeat an item.

A token is taken out if it completes an item that its array has already, or if nothing but such items could come of it.
Most positions are *calm*: there only a token can do that which ends an item and begins another one, and few tokens are
of that kind. Elsewhere the tokens are walked in the order of their bytes, along what was written before.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np

from infernix_plugin.errors import ConstraintTooLarge
from infernix_plugin.grammar.places import UniqueItems
from infernix_plugin.matching.companions.lookahead import leads_on
from infernix_plugin.matching.companions.position import SPACE, Expects, Position, Text
from infernix_plugin.matching.companions.vocabulary import Ids, Node, Vocabulary, allowed, clear
from infernix_plugin.matching.domain import Bitset, TokenClass, TokenDomain
from infernix_plugin.matching.engines.base import EngineGrammar, Matcher

_STRUCTURE = b'"[]{}:,-0123456789tfn'
_NUMBER = b"0123456789+-.eE,]}" + SPACE
_WORD = b"aelrsu"
_BYTES_PER_PLACE = 400


class Companions:
    """The companions over one vocabulary, which is indexed on first use. Thread-safe."""

    def __init__(self, domain: TokenDomain) -> None:
        """Bind to a vocabulary."""
        self._domain = domain
        self._lock = threading.Lock()
        self._vocabulary: Vocabulary | None = None

    def beside(self, grammar: EngineGrammar, unique: UniqueItems | None) -> EngineGrammar:
        """The engine's grammar, restricted to texts that repeat no item that ``unique`` forbids to repeat."""
        if unique is None:
            return grammar
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = Vocabulary(self._domain)
        return UniqueGrammar(grammar, unique, self._vocabulary, self._domain)


class UniqueGrammar:
    """A compiled grammar beside its companion."""

    def __init__(
        self, grammar: EngineGrammar, unique: UniqueItems, vocabulary: Vocabulary, domain: TokenDomain
    ) -> None:
        """Restrict ``grammar``, which derives JSON texts with canonical strings."""
        self.json = Text(unique.places)
        self.opening = unique.opening
        self.separator = unique.separator.encode()
        self.vocabulary = vocabulary
        self.domain = domain
        self._grammar = grammar
        self.engine: str = grammar.engine
        self.memory_bytes: int = grammar.memory_bytes + _BYTES_PER_PLACE * len(unique.places)

    def text(self) -> str:
        """The engine's grammar, without what its companion forbids."""
        return self._grammar.text()

    def matcher(self) -> Matcher:
        """A new matcher at the start of the language."""
        start = self.json.start() if self.opening is None else None
        return UniqueMatcher(self, self._grammar.matcher(), start)


class _Step(NamedTuple):
    """The position before an accepted token."""

    position: Position | None
    before: _Step | None


class UniqueMatcher:
    """An engine's matcher and the position in the JSON text, which is ``None`` as long as the text cannot begin."""

    def __init__(self, grammar: UniqueGrammar, matcher: Matcher, position: Position | None) -> None:
        self._grammar = grammar
        self._matcher = matcher
        self._position = position
        self._steps: _Step | None = None
        self._known: dict[Position, bool] = {}
        """Doubtful positions inside the item under way, and whether they lead on."""

    def fill(self, row: Bitset) -> Bitset:
        """The tokens that may come next; see the protocol."""
        found = self._matcher.fill(row)
        position = self._position
        if position is None:
            return found
        crossing = self._grammar.vocabulary.crossing(position.reach, position.crossing).within(found)
        if not crossing and position.calm:
            return found
        if found is not row:
            np.bitwise_and(found, self._grammar.domain.generable_bits, row)
        if not position.calm:
            self._walk(row, self._grammar.vocabulary.root, position)
        for token in crossing:
            after = self._after(position, token)
            if after is None or (after.doubtful and not self._leads_on(after, token)):
                clear(row, np.array([token]))
        return row

    def accept(self, token: int) -> bool:
        """Advance by one token; see the protocol."""
        before = self._position
        after = self._after(before, token)
        if before is not None and after is None and not self._grammar.domain.is_control(token):
            return False
        if not self._matcher.accept(token):
            return False
        if after is not None and after.doubtful and not self._leads_on(after):
            self._matcher.rollback(1)
            return False
        if before is None or after is None or before.frame is not after.frame:
            self._known = {}
        self._steps = _Step(before, self._steps)
        self._position = after
        return True

    def accept_bytes(self, prefix: bytes) -> int:
        """Advance by raw bytes; see the protocol."""
        for offset in range(len(prefix)):
            byte = prefix[offset : offset + 1]
            after = self._position and self._grammar.json.advance(self._position, byte)
            if self._position is not None and after is None:
                return offset
            if not self._matcher.accept_bytes(byte):
                return offset
            if after is not None and after.doubtful and not self._leads_on(after):
                return offset
            self._position = after
        self._known = {}
        return len(prefix)

    def fork(self) -> Matcher:
        """An independent matcher at this position."""
        fork = UniqueMatcher(self._grammar, self._matcher.fork(), self._position)
        fork._steps = self._steps
        return fork

    def rollback(self, steps: int) -> None:
        """Undo the last ``steps`` accepted tokens."""
        self._matcher.rollback(steps)
        self._known = {}
        for _ in range(steps):
            assert self._steps is not None
            self._position, self._steps = self._steps

    def forced(self) -> bytes:
        """Text with which every continuation begins: of the engine's, and so of those that are left."""
        return self._matcher.forced()

    def can_end(self) -> bool:
        """Whether what was accepted so far is a member of the language."""
        return self._matcher.can_end()

    def _after(self, position: Position | None, token: int) -> Position | None:
        """The position behind a token, which the engine may still refuse."""
        grammar = self._grammar
        if position is not None and grammar.domain.token_class(token) is TokenClass.CONTROL:
            return Position(Expects.NOTHING)  # the engine allows none inside a JSON text
        if position is not None:
            if grammar.domain.is_control(token):  # no JSON text holds one: the output is something else
                return None
            return grammar.json.advance(position, grammar.domain.token_bytes(token))
        return grammar.json.start(grammar.separator) if token == grammar.opening else None

    def _leads_on(self, position: Position, token: int | None = None) -> bool:
        """Whether something other than repetitions may come of a doubtful position: here, or behind a legal token."""
        if position not in self._known:
            scout = self._matcher.fork()
            try:
                reached = token is None or scout.accept(token)
            except ConstraintTooLarge:
                return True  # its own acceptance will say so
            self._known[position] = not reached or leads_on(
                scout, position, self._grammar.json, self._grammar.vocabulary
            )
        return self._known[position]

    def _walk(self, row: Bitset, node: Node, position: Position) -> bool:
        """Judge the tokens of a node, given the position behind the bytes that they share.

        Returns:
            Whether one of those that stay is known to lead on; then so does what the tokens share.
        """
        vocabulary = self._grammar.vocabulary
        tokens: Ids
        branches: dict[int, list[Node]]
        if position.expects in _SCALARS:
            tokens = vocabulary.whole(node)
            children = vocabulary.children(node)
            branches = {byte: [children[byte]] for byte in _interesting(position) if byte in children}
        else:
            spaced = vocabulary.spaced(node)
            tokens = spaced.tokens
            branches = {byte: spaced.branches[byte] for byte in _STRUCTURE if byte in spaced.branches}
        leads = False
        for byte, nodes in branches.items():
            after = self._grammar.json.advance(position, bytes([byte]))
            for child in nodes:
                if after is None:
                    clear(row, vocabulary.ids(child))
                elif not after.calm or after.doubtful:
                    leads |= self._walk(row, child, after)
        if position.doubtful and node.depth:
            tokens = tokens[allowed(row, tokens)]
            if tokens.size:
                leads = leads or self._leads_on(position, int(tokens[0]))
                if not leads:
                    clear(row, tokens)
        return leads


_SCALARS = (Expects.IN_STRING, Expects.IN_KEY, Expects.IN_NUMBER, Expects.IN_WORD)


def _interesting(position: Position) -> bytes:
    """The bytes after which the scalar or the name may still become one of its rivals, or which end it."""
    match position.expects:
        case Expects.IN_NUMBER:
            return _NUMBER
        case Expects.IN_WORD:
            return _WORD
        case _:
            written = len(position.text)
            return bytes({rival[written] for rival in position.rivals if len(rival) > written})
