r"""The grammar tree as xgrammar EBNF text.

What xgrammar 0.2 does with a rule decides how fast its masks are. Every rule becomes one automaton over bytes, and
the legal tokens of every automaton state are computed when the grammar is compiled. A token that runs past the end of
its rule cannot be judged there; it is tried byte by byte for every mask. So short rules inside a loop are the worst
case, and a loop that lives inside one automaton is the best. ``Regex("...")`` builds such an automaton from nested
loops and choices, which plain EBNF would cut into helper rules. Hence regular parts with inner structure are written
as ``Regex``, everything else as plain sequences and choices.

Faults of the engine that are avoided here (0.2.8, each with a test):

- ``\x`` escapes read as many hexadecimal digits as follow; only the fixed-length ``\u`` and ``\U`` are used.
- An entry rule that is referred to gets wrong masks, because its end is taken for the end of the text; it is put
  behind an entry rule of its own.
- ``x?`` in ``Regex`` adds a short cut to a state that may have a way on (``(aa+)?`` matches ``a``), and ``x{2,}`` in
  ``Regex`` loops back in the same way; they are written ``(|x)`` and ``x{2}x*``.
- Of two states with the same ways in, one may end for good and the other go on. The engine makes one of them and, in
  the same step, one of all states that end for good, so ``Regex("a|a{1,2}")`` matches ``aaa``. Every ``Regex`` gets an
  empty part behind it, whose state is then the only one that ends.
- Counts above 128 in ``Regex`` crash the rule cache.
- A range in a class of ``Regex`` that reaches from shorter to longer characters, or several that meet there, also
  lets overlong encodings through (after E0 every continuation byte); so there is a class for each length.
"""

from __future__ import annotations

from collections.abc import Iterable

from infernix_plugin.grammar import budget
from infernix_plugin.grammar.analysis import has_intersections, reachable, references
from infernix_plugin.grammar.ir import Alt, CharSet, Grammar, Literal, Node, Ref, Repeat, Seq, TokenSet
from infernix_plugin.grammar.pool import Facts, Pool

ROOT = "root"
MAX_REGEX_POSITIONS = 1024
"""Largest automaton that is written as one ``Regex``. Every position costs a pass over the vocabulary when compiling:
a hundred rounds of a JSON string character take a second or two, but the plain loop takes a tenth for every mask."""
MAX_REGEX_COUNT = 128
_UTF8_LENGTHS = (0, 0x7FF), (0x800, 0xFFFF), (0x10000, 0x10FFFF)
"""Characters of up to two, of three and of four bytes; the first two lengths may share a class."""
MAX_REGEX_DEPTH = 64
MAX_COUNTED_ROUNDS = 128
MAX_BLOCK_ROUNDS = 32
MIN_BLOCK_ROUNDS = 4
MAX_BLOCK_POSITIONS = 128
"""Rounds of a long count that are written as one automaton. Larger blocks compile longer; smaller ones have more
states near their end, where tokens run into the next block and have to be tried one by one."""
MAX_JOINED_COUNT = 8
MAX_GROUP_DEPTH = 24
"""Deepest nesting inside one rule; what is deeper becomes a rule of its own."""


def emit(grammar: Grammar) -> str:
    """Write ``grammar`` as EBNF whose entry rule is ``root``; equal grammars give equal text.

    Raises:
        ValueError: an :class:`~infernix_plugin.grammar.ir.And` or :class:`~infernix_plugin.grammar.ir.Not` occurs.
    """
    if has_intersections(grammar):
        raise ValueError("xgrammar has no intersection and no complement; lower them first or use another engine")
    return _Writer(grammar).text()


class _Writer:
    """Writes rules in the order they are first needed; rules made on the way are queued behind them."""

    def __init__(self, grammar: Grammar) -> None:
        self._pool = Pool()
        needed = reachable(grammar)
        self._bodies = {name: self._pool.adopt(grammar.rules[name]) for name in grammar.rules if name in needed}
        self._root = grammar.root
        self._names: dict[int, str] = {}
        self._queue: list[tuple[str, Node]] = []

    def text(self) -> str:
        is_needed = any(self._root in references(body) for body in self._bodies.values())
        self._queue.append((ROOT, self._pool.ref(self._root) if is_needed else self._bodies[self._root]))
        # The queue grows while it is written.
        return "".join(f"{name} ::= {self._rule_body(body)}\n" for name, body in budget.watched(self._queue))

    def _rule(self, body: Node) -> str:
        """The name of a rule for ``body``; equal bodies share one."""
        if id(body) not in self._names:
            name = self._names[id(body)] = f"r{len(self._queue)}"
            self._queue.append((name, body))
        return self._names[id(body)]

    # -- plain EBNF ----------------------------------------------------------------------------------------------

    def _rule_body(self, node: Node) -> str:
        parts = list(self._joined(node.items)) if isinstance(node, Seq) else [node]
        if len(parts) == 1 and self._wants_regex(node):
            return regex_macro(node)
        if isinstance(node, Repeat) and self._is_counted_in_blocks(node):
            return self._counted_in_blocks(node)
        if isinstance(node, Repeat) and _is_counted(node):
            return self._counted(node)
        return self._choice(node, 0)

    def _counted_in_blocks(self, node: Repeat) -> str:
        """Blocks of rounds and what is left of the count, each as one automaton."""
        size = self._block_rounds(node.item)
        block = self._rule(self._pool.repeat(node.item, size, size))
        blocks, left = divmod(node.minimum, size)
        parts = [f"{block}{{{blocks}}}"] if blocks else []
        if left:
            parts.append(self._rule(self._pool.repeat(node.item, left, left)))
        if node.maximum is None:
            return " ".join((*parts, self._rule(self._pool.repeat(node.item))))
        # One round less than a block stays behind at least, so that blocks and rest leave no count out.
        free = node.maximum - node.minimum
        blocks = max(free - size + 1, 0) // size
        if blocks:
            parts.append(f"{block}{{0,{blocks}}}")
        return " ".join((*parts, self._rule(self._pool.repeat(node.item, 0, free - blocks * size))))

    def _is_counted_in_blocks(self, node: Repeat) -> bool:
        size = self._block_rounds(node.item)
        return (
            max(node.minimum, node.maximum or 0) > MAX_REGEX_COUNT
            and size >= MIN_BLOCK_ROUNDS
            and self._fits_regex(self._pool.repeat(node.item, size, 2 * size))
        )

    def _block_rounds(self, item: Node) -> int:
        return min(MAX_BLOCK_ROUNDS, MAX_BLOCK_POSITIONS // self._pool.facts(item).positions)

    def _counted(self, node: Repeat) -> str:
        """One round and a reference to the rule for the rounds that may follow."""
        maximum = None if node.maximum is None else node.maximum - 1
        rest = self._pool.repeat(node.item, max(node.minimum - 1, 0), maximum)
        text = self._element(node.item, 0)
        if rest is not self._pool.epsilon:
            text += f" {self._element(rest, 0)}"
        return text if node.minimum else f'"" | {text}'

    def _wants_regex(self, node: Node) -> bool:
        return not _is_flat(node) and self._fits_regex(node)

    def _fits_regex(self, node: Node) -> bool:
        return fits_regex(node, self._pool.facts(node))

    def _choice(self, node: Node, depth: int) -> str:
        """``node`` where alternatives may stand without parentheses."""
        if isinstance(node, Alt) and node.options:
            return " | ".join(self._sequence(option, depth) for option in budget.watched(node.options))
        if isinstance(node, Repeat) and (node.minimum, node.maximum) == (0, 1) and not _is_letter(node.item):
            return f'"" | {self._choice(node.item, depth)}'
        return self._sequence(node, depth)

    def _sequence(self, node: Node, depth: int) -> str:
        if not isinstance(node, Seq):
            return self._element(node, depth)
        return " ".join(self._element(item, depth) for item in self._joined(node.items))

    def _joined(self, items: tuple[Node, ...]) -> Iterable[Node]:
        """The items, where every run of regular ones that needs a ``Regex`` is one item.

        What stands before the first structured item stays outside: tokens that run into a rule cost nothing. Long
        counts of a class stay outside as well: they have many states, and as rules of their own they are shared.
        """
        run: list[Node] = []
        positions = depth = 0  # of the run: that it fits follows from its items, without a look at all of it again
        for item in (*items, None):
            if item is not None and self._fits_regex(item) and not _is_long_count(item):
                if run or not _is_flat(item):
                    facts = self._pool.facts(item)
                    positions, depth = positions + facts.positions, max(depth, facts.depth)
                    if run and (positions > MAX_REGEX_POSITIONS or depth >= MAX_REGEX_DEPTH):
                        yield self._pool.seq(*run)
                        run, positions, depth = [], facts.positions, facts.depth
                    run.append(item)
                    continue
            elif run:
                yield self._pool.seq(*run)
                run, positions, depth = [], 0, 0
            if item is not None:
                yield item

    def _element(self, node: Node, depth: int) -> str:
        """``node`` as one element of a sequence."""
        if self._wants_regex(node):
            return self._rule(node)
        match node:
            case Literal(text):
                return f'"{"".join(char if _is_plain(char) else _escaped(char) for char in text)}"'
            case CharSet(ranges):
                return _character_class(ranges)
            case TokenSet(ids, exclude):
                return _token_set(ids, exclude)
            case Ref(name):
                return self._rule(self._bodies[name])
            case Repeat() if self._is_counted_in_blocks(node) or _is_counted(node):
                return self._rule(node)
            case Repeat(item, minimum, maximum):
                return self._repeated(item, depth) + _quantifier(minimum, maximum)
            case Seq():
                return self._sequence(node, depth)
            case Alt(()):
                return "[]"
            case _:
                return self._group(node, depth)

    def _repeated(self, item: Node, depth: int) -> str:
        if isinstance(item, CharSet | TokenSet | Ref) or (isinstance(item, Literal) and len(item.text) == 1):
            return self._element(item, depth)
        return self._group(item, depth)

    def _group(self, node: Node, depth: int) -> str:
        return self._rule(node) if depth >= MAX_GROUP_DEPTH else f"({self._choice(node, depth + 1)})"


def fits_regex(node: Node, facts: Facts) -> bool:
    """Whether ``node`` is regular and small enough to be written as one ``Regex``."""
    return (
        facts.regular
        and facts.plain
        and facts.positions <= MAX_REGEX_POSITIONS
        and facts.depth <= MAX_REGEX_DEPTH
        and not _counts_beyond(node, MAX_REGEX_COUNT)
    )


def _is_letter(node: Node) -> bool:
    return isinstance(node, CharSet) or (isinstance(node, Literal) and len(node.text) == 1)


def _is_flat(node: Node) -> bool:
    """Whether plain EBNF puts ``node`` into one automaton: alternatives of sequences of texts, classes, class stars."""
    return all(
        isinstance(item, Literal | CharSet)
        or (isinstance(item, Repeat) and isinstance(item.item, CharSet) and (item.minimum, item.maximum) == (0, None))
        for option in (node.options if isinstance(node, Alt) else (node,))
        for item in (option.items if isinstance(option, Seq) else (option,))
    )


def _is_long_count(node: Node) -> bool:
    return (
        isinstance(node, Repeat) and _is_letter(node.item) and max(node.minimum, node.maximum or 0) > MAX_JOINED_COUNT
    )


def _is_counted(node: Repeat) -> bool:
    """Whether the rounds are written out: xgrammar does the same, but overflows its stack when a rule counts itself."""
    top = max(node.minimum, node.maximum or 0)
    return not _is_letter(node.item) and 1 < top <= MAX_COUNTED_ROUNDS


def _counts_beyond(node: Node, limit: int) -> bool:
    pending = [node]
    while pending:
        current = pending.pop()
        match current:
            case Repeat(item, minimum, maximum):
                if max(minimum, maximum or 0) > limit:
                    return True
                pending.append(item)
            case Seq(items):
                pending.extend(items)
            case Alt(options):
                pending.extend(options)
    return False


def _quantifier(minimum: int, maximum: int | None) -> str:
    match minimum, maximum:
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case 0, 1:
            return "?"
    if minimum == maximum:
        return f"{{{minimum}}}"
    return f"{{{minimum},{'' if maximum is None else maximum}}}"


# -- characters --------------------------------------------------------------------------------------------------


def _is_plain(char: str) -> bool:
    """Whether ``char`` stands for itself inside an EBNF string."""
    return " " <= char <= "~" and char not in '"\\'


def _escaped(char: str) -> str:
    """One character inside an EBNF string or class. Only letters, digits and blanks stand for themselves."""
    if char == " " or (char.isascii() and char.isalnum()):
        return char
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"


def _character_class(ranges: tuple[tuple[int, int], ...]) -> str:
    parts = (
        _escaped(chr(low)) if low == high else f"{_escaped(chr(low))}-{_escaped(chr(high))}" for low, high in ranges
    )
    return f"[{''.join(parts)}]"


def _token_set(ids: tuple[int, ...], exclude: bool) -> str:
    if ids:
        return f"{'ExcludeToken' if exclude else 'Token'}({', '.join(map(str, sorted(set(ids))))})"
    # The macros need an argument: "no token" is an empty class, "any token" is a token or any other.
    return "(Token(0) | ExcludeToken(0))" if exclude else "[]"


# -- regular expressions -----------------------------------------------------------------------------------------


def regex_macro(node: Node) -> str:
    """The ``Regex("...")`` of a regular node no deeper than :data:`MAX_REGEX_DEPTH`."""
    return f'Regex("({_regex(node).replace(chr(92), chr(92) * 2)})()")'


def _regex(node: Node) -> str:
    match node:
        case Literal(text):
            return "".join(map(_regex_char, text))
        case CharSet(ranges):
            return _regex_class(ranges)
        case Seq(items):
            return "".join(f"({_regex(item)})" if isinstance(item, Alt) else _regex(item) for item in items)
        case Alt(options):
            return "|".join(map(_regex, options))
        case Repeat(item, minimum, maximum):
            inner = _regex(item)
            if (minimum, maximum) == (0, 1):
                return f"(|{inner})"
            if not _is_letter(item):
                inner = f"({inner})"
            if maximum is None and minimum > 1:
                return f"{inner}{{{minimum}}}{inner}*"
            return inner + _quantifier(minimum, maximum)
        case _:
            raise ValueError(f"{type(node).__name__} is not regular")


def _regex_class(ranges: tuple[tuple[int, int], ...]) -> str:
    """A class of each length that its characters have in UTF-8, up to two bytes in one."""
    classes = []
    for first, last in _UTF8_LENGTHS:
        parts = [
            (_regex_char(chr(max(low, first))), _regex_char(chr(min(high, last))))
            for low, high in ranges
            if low <= last and high >= first
        ]
        if parts:
            classes.append(f"[{''.join(low if low == high else f'{low}-{high}' for low, high in parts)}]")
    return classes[0] if len(classes) == 1 else f"({'|'.join(classes)})"


def _regex_char(char: str) -> str:
    return char if char == " " or (char.isascii() and char.isalnum()) else f"\\u{{{ord(char):x}}}"
