"""A grammar as a pushdown automaton that is made deterministic while it is used.

A :class:`State` is the set of all that the text so far may be in the middle of: for each an atom, and the stack of what
follows it. Equal stacks are the same object and so are equal states, so the same state leaves the same texts to be
written. The converse need not hold: what looks different may leave the same texts, and a state may lead nowhere.

States are partial derivatives (Antimirov 1996), taken through rules with a stack. Lexemes, intersections and
complements have machines of their own, whose states are atoms: what is known of a terminal is known wherever it stands.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

from infernix_plugin.grammar.ir import (
    ANY_CHAR,
    EPSILON,
    Alt,
    And,
    CharSet,
    Lexeme,
    Literal,
    Node,
    Not,
    Ref,
    Repeat,
    Seq,
    TokenSet,
    Words,
    repeat,
)
from infernix_plugin.matching.domain import Bitset
from infernix_plugin.matching.memo.atoms import DONE, Atom, character, text, word
from infernix_plugin.matching.memo.masks import KnownMask
from infernix_plugin.matching.memo.memory import Memory

MAX_ITEMS = 256
"""Most alternatives of one state."""
MAX_LOOKS = 2048
"""Most nodes and items that are looked at to find one state."""
_STATE_BYTES = 600
_ITEM_BYTES = 100
_MOVE_BYTES = 60

_NAMED = (Ref, Repeat)
"""What a place may come to again without having read anything."""
_BYTES = tuple(bytes((byte,)) for byte in range(256))

_lock = threading.RLock()
"""Held while anything is added to any machine. What is known already is read without it."""


class Stack:
    """What follows an atom: ``node`` from its item ``index`` on, or after ``index`` rounds; then ``rest``."""

    __slots__ = ("entry", "index", "node", "rest")

    def __init__(self, node: Node, index: int, rest: Stack | None) -> None:
        self.node = node
        self.index = index
        self.rest = rest
        self.entry: _Entry | None = None


END = Stack(EPSILON, 0, None)

Item = tuple[Atom, Stack]
_Entry = tuple[frozenset[Item], bool]
"""What may come next, and whether the text may end there."""


class State:
    """A position. Nothing of it changes but what is remembered.

    Attributes:
        items: what may come next.
        accepting: whether the text may end here.
        open: whether it may go on.
        names_tokens: whether a token may come next by its id.
        mask: the tokens that may come next, once they are known; without those that end the text.
        forced: text with which everything here begins, once it is known.
        steps: the states after the tokens that were read here, unless it is this one.
    """

    __slots__ = ("_machine", "_moves", "accepting", "forced", "items", "mask", "names_tokens", "open", "steps")

    def __init__(self, machine: Machine, items: frozenset[Item], accepting: bool) -> None:
        self._machine = machine
        self._moves: dict[int, State | None] = {}
        self.steps: dict[int, State | None] = {}
        self.items = items
        self.accepting = accepting
        self.open = bool(items)
        self.names_tokens = any(isinstance(atom, TokenAtom) for atom, _ in items)
        self.mask: KnownMask | None = None
        self.forced: bytes | None = None

    def after(self, byte: int) -> State | None:
        """The state after one more byte; ``None`` if there surely is none, :data:`LOST` if it is too much to follow."""
        try:
            return self._moves[byte]
        except KeyError:
            pass
        with _lock:
            target = self._moves[byte] = self._machine.follow(self, _BYTES[byte])
            self._machine.spend(_MOVE_BYTES)
            return target

    def over(self, token: int, piece: bytes) -> State | None:
        """The state after a token that writes ``piece``, nothing for a control token; otherwise as :meth:`after`."""
        with _lock:
            target = self._machine.follow(self, piece, token)
            if target is not self:
                self.steps[token] = target
                self._machine.spend(_MOVE_BYTES)
            return target

    def remember(self, row: Bitset) -> None:
        """Keep a copy of the mask of this state."""
        mask = KnownMask(row)
        with _lock:
            if self.mask is None:
                self.mask = mask
                self._machine.spend(mask.bytes)

    def forget(self) -> None:
        """Drop what is remembered."""
        self._moves.clear()
        self.steps.clear()
        self.mask = None
        self.forced = None


def _inside(items: Collection[Item], piece: bytes) -> tuple[Collection[Item], bytes]:
    """Read on while nothing but a single atom can, and does not end; what of ``piece`` is left then."""
    ((atom, rest),) = items
    for place, byte in enumerate(piece):
        target = atom.after(byte)
        if target is None or target.accepting or target is LOST:
            return ((atom, rest),), piece[place:]
        atom = target
    return ((atom, rest),), b""


class Machine:
    """The states of one language.

    Attributes:
        bytes: approximate size of what is remembered.
        spent_at: when it last remembered something more.
        work: what finding states has cost so far, in looks at nodes and items; about a microsecond each.
    """

    def __init__(self, start: Node, rules: Mapping[str, Node], terminals: Terminals) -> None:
        """Nothing is done before the first look."""
        self._start = start
        self._rules = rules
        self._terminals = terminals
        self._stacks: dict[tuple[int, int, Stack], Stack] = {}
        self._states: dict[_Entry, State] = {}
        self._looks = 0
        self.work = 0
        self.bytes = self._settled = self.spent_at = 0
        terminals.memory.watch(self)

    def start(self) -> State:
        """The state before the first byte; :data:`LOST` if it is too much to follow."""
        with _lock:
            self._looks = 0
            try:
                return self._state(*self._enter(self._start, 0, END))
            except (_TooMuch, RecursionError):
                return LOST
            finally:
                self.spend(0)

    def follow(self, state: State, piece: bytes, token: int | None = None) -> State | None:
        """Find the state after ``piece``, which one token may write or be read by its id. Called under the lock."""
        items: Collection[Item] = state.items if piece else ()
        accepting = False
        work = self._terminals.work
        self._looks = 1
        try:
            if len(items) == 1:
                items, piece = _inside(items, piece)
                if not piece and items == tuple(state.items) and not state.accepting:
                    return state
            for byte in piece:
                found: set[Item] = set()
                accepting = False
                self._looks += len(items)
                for atom, rest in items:
                    target = atom.after(byte)
                    if target is not None:
                        accepting |= self._arrive(target, rest, found)
                items = found
            if token is not None and state.names_tokens:
                items = {*items}
                for atom, rest in state.items:
                    if isinstance(atom, TokenAtom) and atom.takes(token):
                        accepting |= self._arrive(DONE, rest, items)
            return self._state(frozenset(items), accepting) if items or accepting else None
        except (_TooMuch, RecursionError):
            return LOST
        finally:
            self._terminals.work += self._looks
            self.work += self._terminals.work - work

    def spend(self, size: int) -> None:
        """Count ``size`` more bytes that are remembered; past the budget of all machines, some forget everything."""
        self.bytes += size
        added = self.bytes - self._settled
        self._settled = self.bytes
        self.spent_at = self._terminals.memory.ever_spent
        self._terminals.memory.spend(added)

    def forget(self) -> None:
        """Drop all states; those still in use find their way again."""
        for state in self._states.values():
            state.forget()
        self._states = {}
        self._stacks = {}
        self.bytes = self._settled = 0

    def _arrive(self, atom: Atom, rest: Stack, found: set[Item]) -> bool:
        """Add what may come next at ``atom`` with ``rest`` behind it; whether the text may end there."""
        if atom is LOST:
            raise _TooMuch
        if atom.open:
            found.add((atom, rest))
        if not atom.accepting:
            return False
        if rest.entry is None:
            rest.entry = (frozenset(), True) if rest.rest is None else self._enter(rest.node, rest.index, rest.rest)
        items, accepting = rest.entry
        found |= items
        return accepting

    def _enter(self, node: Node, index: int, rest: Stack) -> _Entry:
        """What may come next where ``node`` goes on from ``index``; whether all of it may be passed over."""
        found: set[Item] = set()
        accepting = False
        pending: list[tuple[Node, int, Stack | None]] = [(node, index, rest)]
        seen: set[tuple[int, int, Stack]] = set()
        while pending:
            node, index, behind = pending.pop()
            if behind is None:
                accepting = True
                continue
            self._looks += 1
            if self._looks > MAX_LOOKS:
                raise _TooMuch
            if isinstance(node, Seq):
                items = node.items
                if index + 1 < len(items):
                    pending.append((items[index], 0, self._stack(node, index + 1, behind)))
                else:
                    pending.append((items[index], 0, behind) if items else (behind.node, behind.index, behind.rest))
            elif isinstance(node, Alt):
                pending.extend([(option, 0, behind) for option in node.options])
            elif isinstance(node, _NAMED):
                key = id(node), index, behind
                if key in seen:
                    continue
                seen.add(key)
                if isinstance(node, Ref):
                    pending.append((self._rules[node.name], 0, behind))
                    continue
                if node.maximum is None or index < node.maximum:
                    rounds = min(index + 1, node.minimum) if node.maximum is None else index + 1
                    pending.append((node.item, 0, self._stack(node, rounds, behind)))
                if index >= node.minimum:
                    pending.append((behind.node, behind.index, behind.rest))
            else:
                atom = self._terminals.atom(node)
                if atom is LOST:
                    raise _TooMuch
                if atom.open:
                    found.add((atom, behind))
                if atom.accepting:
                    pending.append((behind.node, behind.index, behind.rest))
        return frozenset(found), accepting

    def _stack(self, node: Node, index: int, rest: Stack) -> Stack:
        key = id(node), index, rest
        stack = self._stacks.get(key)
        if stack is None:
            stack = self._stacks[key] = Stack(node, index, rest)
            self.bytes += _ITEM_BYTES
        return stack

    def _state(self, items: frozenset[Item], accepting: bool) -> State:
        if len(items) > MAX_ITEMS:
            raise _TooMuch
        key = items, accepting
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = State(self, items, accepting)
            self.bytes += _STATE_BYTES + _ITEM_BYTES * len(items)
        return state


class _TooMuch(Exception):
    """A place leaves more open than is worth remembering, or without end: left recursion, for example."""


MAX_ATOMS = 1 << 12
"""Most nodes whose atoms are kept."""


class Terminals:
    """The atoms of all machines that share one memory, each made on first use.

    Attributes:
        memory: the budget.
        work: the work of all machines.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.work = 0
        self._atoms: dict[int, tuple[Node, Atom]] = {}
        self._anything: Atom | None = None

    def atom(self, node: Node) -> Atom:
        """The atom of a node that is neither reference, sequence, choice nor repetition."""
        known = self._atoms.get(id(node))
        if known is not None and known[0] is node:
            return known[1]
        with _lock:
            atom = self._made(node)
            if len(self._atoms) >= MAX_ATOMS:
                self._atoms.clear()
            self._atoms[id(node)] = node, atom  # which keeps the node's identity from being used again
            return atom

    def _made(self, node: Node) -> Atom:
        match node:
            case Literal(content):
                return text(node) if content else DONE
            case Words():
                return word(node)
            case CharSet():
                return character(node)
            case TokenSet():
                return TokenAtom(node)
            case Lexeme(item):
                return self.atom(item) if isinstance(item, And | Not | Lexeme) else self._machine(item)
            case And(items):
                return self._product(items)
            case _:
                return self._product((node,))

    def _machine(self, node: Node) -> Atom:
        return Machine(node, {}, self).start()

    def _product(self, items: tuple[Node, ...]) -> Atom:
        inside = tuple(self._part(item) for item in items if not isinstance(item, Not))
        outside = tuple(self._part(item.item) for item in items if isinstance(item, Not))
        if not inside:
            if self._anything is None:
                self._anything = self._machine(repeat(ANY_CHAR))
            inside = (self._anything,)
        return LOST if LOST in (*inside, *outside) else _Product(inside, outside, {})

    def _part(self, node: Node) -> Atom:
        return self.atom(node) if isinstance(node, And | Not | Lexeme | Literal | CharSet) else self._machine(node)


class TokenAtom:
    """One token of a set, by its id. It reads no bytes."""

    __slots__ = ("_exclude", "_ids")
    accepting = False
    open = True

    def __init__(self, node: TokenSet) -> None:
        self._ids = frozenset(node.ids)
        self._exclude = node.exclude

    def after(self, byte: int) -> Atom | None:
        """Nothing."""
        return None

    def takes(self, token: int) -> bool:
        """Whether the token, which is one that can be generated, is in the set."""
        return (token in self._ids) != self._exclude


_Parts = tuple[tuple[Atom, ...], tuple[Atom, ...]]


class _Product:
    """The strings in all of ``inside`` and in none of ``outside``."""

    __slots__ = ("_inside", "_known", "_outside", "accepting", "open")
    MAX_KNOWN = 1 << 12

    def __init__(self, inside: tuple[Atom, ...], outside: tuple[Atom, ...], known: dict[_Parts, Atom]) -> None:
        self._inside = inside
        self._outside = outside
        self._known = known
        self.accepting = all(part.accepting for part in inside) and not any(part.accepting for part in outside)
        self.open = all(part.open for part in inside)

    def after(self, byte: int) -> Atom | None:
        inside: list[Atom] = []
        for part in self._inside:
            target = part.after(byte)
            if target is None:
                return None
            inside.append(target)
        outside = [target for part in self._outside if (target := part.after(byte)) is not None]
        if LOST in inside or LOST in outside:
            return LOST
        key = tuple(inside), tuple(outside)
        with _lock:
            known = self._known.get(key)
            if known is None:
                if len(self._known) >= self.MAX_KNOWN:
                    self._known.clear()
                known = self._known[key] = _Product(*key, self._known)
        return known


class _Lost(State):
    """A place that is not followed."""

    def after(self, byte: int) -> State | None:
        return self

    def over(self, token: int, piece: bytes) -> State | None:
        return self


LOST = _Lost(Machine(EPSILON, {}, Terminals(Memory(0))), frozenset(), False)
UNDECIDED = State(Machine(EPSILON, {}, Terminals(Memory(0))), frozenset(), False)
"""Stands for the first state until that is looked up."""
