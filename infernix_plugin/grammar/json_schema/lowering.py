"""From shapes to grammar rules.

Every array, object and bounded scalar becomes one rule, made from a work list, so neither the nesting of the
schema nor its recursion is recursion here. What cannot be generated is pruned at the end: an optional member whose
value has no finite form is not offered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import replace

from infernix_plugin.errors import ConstraintTooLarge, UnsatisfiableConstraint, UnsupportedSchema
from infernix_plugin.grammar import budget
from infernix_plugin.grammar.analysis import nodes
from infernix_plugin.grammar.ir import (
    EPSILON,
    NEVER,
    Grammar,
    Lexeme,
    Literal,
    Node,
    Ref,
    alt,
    optional,
    repeat,
    seq,
)
from infernix_plugin.grammar.json_schema import multiples, numbers, values
from infernix_plugin.grammar.json_schema.contradictions import contradiction, ruled_out
from infernix_plugin.grammar.json_schema.json_value import ROOT
from infernix_plugin.grammar.json_schema.prune import productive_rules, pruned
from infernix_plugin.grammar.json_schema.reducer import Reducer, refusal
from infernix_plugin.grammar.json_schema.shape import (
    ANY,
    UNCONSTRAINED,
    Arrays,
    Boolean,
    Branch,
    Count,
    Finite,
    Goal,
    Inexpressible,
    Listing,
    Null,
    Numbers,
    Objects,
    Shape,
    Some,
    Strings,
    join,
    located,
    negated,
    pointer_of,
)
from infernix_plugin.grammar.json_schema.strings import intersection, matching, spelling
from infernix_plugin.grammar.json_schema.supply import reading
from infernix_plugin.grammar.json_schema.uniqueness import has_supply, watched_places
from infernix_plugin.grammar.json_schema.values import COLON, COMMA, braced
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.grammar.places import UniqueItems

_State = tuple[int, tuple[int, ...]]
"""How many items were written, up to where that matters, and how many each count has found, likewise."""

_FREE = {
    UNCONSTRAINED["object"]: values.OBJECT,
    UNCONSTRAINED["array"]: values.ARRAY,
    UNCONSTRAINED["string"]: values.STRING,
    UNCONSTRAINED["number"]: values.NUMBER,
    Numbers(integer=True): values.INTEGER,
}


MAX_UNIQUE_VALUES = 8
"""Longest list of values that the items of an array may be taken from without repetition."""


class Lowering:
    """Grammar rules for the goals of one document, starting at its root."""

    def __init__(self, reducer: Reducer, options: GrammarOptions) -> None:
        self._reducer = reducer
        self._options = options
        self._rules: dict[str, Node] = {}
        self._names: dict[Branch, str] = {}
        self._pending: deque[tuple[str, Branch, Goal]] = deque()
        self._nodes = 0
        self._listed: dict[Goal, Shape] = {}
        self._watched: set[Branch] = set()

    def grammar(self) -> Grammar:
        """The grammar of the document's root.

        Raises:
            UnsatisfiableConstraint: no value satisfies the schema; the location is where it fails.
            UnsupportedSchema: a range of numbers that holds none we could write.
            ConstraintTooLarge: more than ``max_nodes`` grammar nodes.
        """
        self._define("root", self.root())
        while self._pending:
            name, branch, goal = self._pending.popleft()
            with located(goal):
                self._define(name, self._body(name, branch, goal))
        grammar = Grammar({**self._rules, **values.shared_rules(self._options)})
        alive = productive_rules(grammar.rules)
        if grammar.root not in alive:
            place, required = self._culprit((ROOT,), alive)
            schema = self._reducer.schema_at(place)
            hint = contradiction(schema) if schema is not False or required is None else ruled_out(required, place)
            raise UnsatisfiableConstraint("No JSON value satisfies the schema", location=place, hint=hint)
        if self._watched:
            places = watched_places(self._reducer, self._watched.__contains__)
            grammar = replace(grammar, unique=UniqueItems(places))
        return pruned(grammar, alive)

    def root(self) -> Node:
        """The entry rule: the values that satisfy the whole document."""
        return self.value((ROOT,))

    def _define(self, name: str, body: Node) -> None:
        budget.checkpoint()
        self._spend(nodes(body))
        self._rules[name] = body

    def _named(self, name: str, body: Node) -> Node:
        """A reference to a new rule, for what is needed more than once."""
        self._define(name, body)
        return Ref(name)

    def _spend(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > self._options.max_nodes:
            raise ConstraintTooLarge(
                f"The schema lowers to more grammar nodes than the limit max_nodes of {self._options.max_nodes}"
            )

    def value(self, goal: Goal) -> Node:
        """The values that satisfy the goal, as a reference or a short literal."""
        budget.checkpoint()
        shape = self._shape(goal)
        if shape == ANY:
            return values.VALUE
        return alt(*(self._branch(part, goal) for branch in budget.watched(shape) for part in self._cases(branch)))

    def _shape(self, goal: Goal) -> Shape:
        """What satisfies the goal; lists of strings, such as the consts of an anyOf, are one list."""
        shape = self._reducer.shape(goal)
        lists = [branch for branch in shape if isinstance(branch, Finite) and branch.kind == "string"]
        if len(lists) < 2:
            return shape
        if goal not in self._listed:
            texts = [value for branch in budget.watched(lists) for value in self._reducer.membership.values(branch)]
            others = (branch for branch in shape if not isinstance(branch, Finite) or branch.kind != "string")
            self._listed[goal] = (Finite("string", Listing(tuple(texts))), *others)
        return self._listed[goal]

    def _cases(self, branch: Branch) -> Shape:
        return self._reducer.witnesses(branch) if isinstance(branch, Objects) and branch.some else (branch,)

    def _branch(self, branch: Branch, goal: Goal) -> Node:
        match branch:
            case Inexpressible():
                raise refusal(branch)
            case Null():
                return values.NULL
            case Boolean():
                return alt(values.TRUE, values.FALSE)
        if branch in _FREE:
            return _FREE[branch]
        if branch not in self._names:
            name = f"{branch.kind}_{len(self._names) + 1}"
            self._names[branch] = name
            self._pending.append((name, branch, goal))
        return Ref(self._names[branch])

    def _body(self, name: str, branch: Branch, goal: Goal) -> Node:
        match branch:
            case Finite():
                return values.one_of(self._reducer.membership.values(branch))
            case Numbers():
                return self._number(branch, goal)
            case Strings():
                return self._string(branch, goal)
            case Arrays():
                return self._array(name, branch, goal)
            case Objects():
                return self._object(name, branch, goal)
        raise AssertionError(branch)

    # Scalars ----------------------------------------------------------------------------------------------------

    def _number(self, branch: Numbers, goal: Goal) -> Node:
        if branch.multiples or branch.others:
            stepped = multiples.stepped(branch, self._options.max_number_digits)
            if stepped is None:
                raise UnsupportedSchema(
                    "multipleOf of this number needs too large a grammar",
                    location=pointer_of(goal),
                    hint="set minimum and maximum so that at most a thousand are left, or list the values as enum",
                )
            return NEVER if stepped == NEVER else Lexeme(stepped)
        node = numbers.between(branch, self._options.max_number_digits)
        if node == NEVER:
            raise UnsupportedSchema("The range holds no int64 or binary64 number", location=pointer_of(goal))
        return Lexeme(node)

    def _string(self, branch: Strings, goal: Goal) -> Node:
        minimum, maximum = self._counts(branch, goal)
        return matching(branch, minimum, maximum) if self._reducer.may_match(branch) else NEVER

    def _counts(self, branch: Strings | Arrays, goal: Goal) -> tuple[int, int | None]:
        """The bounds of a repetition. A larger maximum than any output can reach is lowered to the limit."""
        limit = self._options.max_repetition
        if branch.minimum > limit:
            raise ConstraintTooLarge(
                f"A minimum of {branch.minimum} is over the limit max_repetition of {limit}", location=pointer_of(goal)
            )
        return branch.minimum, branch.maximum if branch.maximum is None else min(branch.maximum, limit)

    # Arrays -----------------------------------------------------------------------------------------------------

    def _array(self, name: str, branch: Arrays, goal: Goal) -> Node:
        minimum, maximum = self._counts(branch, goal)
        if branch.unique and maximum not in (0, 1):
            return self._unique_array(name, branch, goal)
        if branch.counts:
            return self._containing_array(name, branch, goal)
        positions = branch.positions if maximum is None else min(branch.positions, maximum)
        items = [self.value(branch.item(index)) for index in range(positions)]
        if maximum is None or maximum > positions:
            repeated = self.value(branch.item(positions))
            least = max(0, minimum - positions)
            most = None if maximum is None else maximum - positions
        else:
            repeated, least, most = NEVER, 0, 0
        first = self._items(name, items, minimum, (repeated, least, most))
        return braced("[", first, "]", may_be_empty=minimum == 0)

    def _containing_array(self, name: str, branch: Arrays, goal: Goal) -> Node:
        """Items of which some are counted; a rule says what may follow so many items and so many counted ones."""
        minimum, maximum = self._counts(branch, goal)
        end = max(branch.positions, minimum, *(count.start for count in branch.counts)) if maximum is None else maximum

        def complete(state: _State) -> bool:
            index, found = state
            return index >= minimum and all(
                have >= count.minimum for have, count in zip(found, branch.counts, strict=True)
            )

        def options(state: _State) -> list[tuple[Node, _State]]:
            index, found = state
            if index == maximum:
                return []
            ways: list[tuple[Goal, tuple[int, ...]]] = [(branch.item(index), ())]
            for have, count in zip(found, branch.counts, strict=True):
                ways = [
                    (join(demand, more), (*counted, after))
                    for demand, counted in ways
                    for more, after in _counting(count, have, index)
                ]
            after = index + 1 if maximum is not None else min(index + 1, end)
            items = ((self.value(demand), (after, counted)) for demand, counted in ways)
            return [(item, following) for item, following in items if item != NEVER]

        start: _State = (0, (0,) * len(branch.counts))
        first = options(start)
        pending, seen = [state for _, state in first], set[_State]()
        while pending:
            state = pending.pop()
            if state in seen:
                continue
            seen.add(state)
            if len(seen) > (limit := self._options.max_count_states):
                raise ConstraintTooLarge(
                    "contains and the length of the array need more cases together than max_count_states, which is "
                    f"{limit}",
                    location=pointer_of(goal),
                    hint="use smaller counts, or leave maxItems out",
                )
            following = options(state)
            pending.extend(state for _, state in following)
            ways = [seq(COMMA, item, Ref(_state_name(name, after))) for item, after in following]
            self._define(_state_name(name, state), alt(*([EPSILON] if complete(state) else []), *ways))
        begun = alt(*(seq(item, Ref(_state_name(name, after))) for item, after in first))
        return braced("[", begun, "]", may_be_empty=complete(start))

    def _unique_array(self, name: str, branch: Arrays, goal: Goal) -> Node:
        """Items without repetition: where they are from a short list, a rule says what may follow once certain of them
        were written; elsewhere a companion of the grammar keeps them apart."""
        listed = None if branch.positions or branch.counts else self._reducer.membership.listed(branch.item(0))
        spellings: dict[Hashable, list[Node]] = {}
        for value in listed or ():
            spellings.setdefault(reading(value), []).append(values.literal(value))
        if listed is None or len(spellings) > MAX_UNIQUE_VALUES:
            return self._watched_array(name, branch, goal)
        items = [alt(*nodes) for nodes in spellings.values()]
        last = len(items) if branch.maximum is None else min(branch.maximum, len(items))
        for written in range(1, 1 << len(items)):
            count = written.bit_count()
            options: list[Node] = [EPSILON] if count >= branch.minimum else []
            if count < last:
                options += self._unwritten(name, items, written)
            if count <= last:
                self._define(f"{name}_{written}", alt(*options))
        first = alt(*(seq(item, Ref(f"{name}_{1 << index}")) for index, item in enumerate(items)))
        return braced("[", first, "]", may_be_empty=branch.minimum == 0)

    def _watched_array(self, name: str, branch: Arrays, goal: Goal) -> Node:
        """An array whose items a companion keeps apart."""
        if branch.counts:
            raise UnsupportedSchema(
                "uniqueItems is not supported beside contains",
                location=pointer_of((branch.counts[0].place,)),
                hint="drop one of the two",
            )
        if not has_supply(self._reducer, branch, goal):
            return NEVER
        self._watched.add(branch)
        return self._array(name, replace(branch, unique=False), goal)

    @staticmethod
    def _unwritten(name: str, items: list[Node], written: int) -> list[Node]:
        rest = ((index, item) for index, item in enumerate(items) if not written >> index & 1)
        return [seq(COMMA, item, Ref(f"{name}_{written | 1 << index}")) for index, item in rest]

    def _items(self, name: str, items: list[Node], minimum: int, tail: tuple[Node, int, int | None]) -> Node:
        """One or more items: those by position, each needing the ones before it, then the tail."""
        repeated, least, most = tail
        if not items:
            if most == 0:
                return NEVER
            return seq(repeated, repeat(seq(COMMA, repeated), max(0, least - 1), None if most is None else most - 1))
        rest = repeat(seq(COMMA, repeated), least, most)
        for index in range(len(items) - 1, max(minimum, 1) - 1, -1):
            self._define(f"{name}_{index}", optional(seq(COMMA, items[index], rest)))
            rest = Ref(f"{name}_{index}")
        needed = (part for item in items[1:minimum] for part in (COMMA, item))
        return seq(items[0], *needed, rest)

    # Objects ----------------------------------------------------------------------------------------------------

    def _object(self, name: str, branch: Objects, goal: Goal) -> Node:
        """Declared members in declared order, then others; a comma stands before every member but the first."""
        self._spend(len(branch.names) * len(branch.layers))  # the work of resolving every name in every layer
        required = set(branch.required)
        members = [
            (seq(Literal(spelling(key)), COLON, self.value(self._reducer.member(branch, key))), key in required)
            for key in branch.names
        ]
        extra = self._undeclared(branch)
        if branch.minimum > len(required) or branch.maximum is not None:
            self._check_minimum(branch, extra, goal)
            return self._counted_object(name, branch, members, extra)
        witness = self._undeclared(branch, branch.last) if branch.last else EPSILON
        extras = _run((extra, witness), 0, None, first=False)
        first = next((index for index, (_, needed) in enumerate(members) if needed), len(members))
        tail = seq(*(self._later(member) for member in members[first + 1 :]), extras)
        if first == len(members):
            alone = _run((extra, witness), 1, None, first=True)
            heads = self._heads(name, members, alone, extras)
            return braced("{", heads, "}", may_be_empty=not branch.last)
        needed, _ = members[first]
        if first == 0:
            return braced("{", seq(needed, tail), "}", may_be_empty=False)
        rest = self._named(f"{name}_rest", seq(needed, tail))
        return braced("{", self._heads(name, members[:first], rest, seq(COMMA, rest)), "}", may_be_empty=False)

    def _undeclared(self, branch: Objects, somes: tuple[Some, ...] = ()) -> Node:
        """One member whose name is not declared, which is all the ``somes``."""
        options = []
        for names, goal in self._reducer.undeclared(branch, somes):
            value = self.value(goal)
            if value != NEVER:
                options.append(seq(intersection(names) if names else values.STRING, COLON, value))
        return alt(*options)

    @staticmethod
    def _check_minimum(branch: Objects, extra: Node, goal: Goal) -> None:
        """A name that is not declared may come twice, which a parser counts once; so only one of them may matter."""
        if extra != NEVER and branch.minimum - len(branch.required) > 1:
            raise UnsupportedSchema(
                f"minProperties {branch.minimum} is not supported where members may have undeclared names",
                location=pointer_of(goal),
                hint="list the names in required, or declare them and set additionalProperties to false",
            )

    def _counted_object(self, name: str, branch: Objects, members: list[tuple[Node, bool]], extra: Node) -> Node:
        """Members in order; a rule says what may follow so many declared members if so many have been written."""
        minimum, maximum = branch.minimum, branch.maximum
        witness = self._undeclared(branch, branch.last) if branch.last else EPSILON
        if maximum is not None and maximum >= len(members) and extra == NEVER:
            maximum = None
        most = min(len(members), max(minimum, 1) if maximum is None else maximum)
        self._spend((len(members) + 1) * (most + 1))
        for written in range(most + 1):
            least = max(minimum - written, 0 if written else 1)
            room = None if maximum is None else maximum - written
            self._define(f"{name}_{len(members)}_{written}", _run((extra, witness), least, room, first=not written))
        for index in range(len(members) - 1, -1, -1):
            node, needed = members[index]
            for written in range(min(index, most) + 1):
                after = Ref(f"{name}_{index + 1}_{min(written + 1, most)}")
                options: list[Node] = [] if needed else [Ref(f"{name}_{index + 1}_{written}")]
                if maximum is None or written < maximum:
                    options.append(seq(COMMA, node, after) if written else seq(node, after))
                self._define(f"{name}_{index}_{written}", alt(*options))
        may_be_empty = minimum == 0 and not branch.required and not branch.last
        return braced("{", Ref(f"{name}_0_0"), "}", may_be_empty=may_be_empty)

    @staticmethod
    def _later(member: tuple[Node, bool]) -> Node:
        node, needed = member
        return seq(COMMA, node) if needed else optional(seq(COMMA, node))

    def _heads(self, name: str, members: list[tuple[Node, bool]], alone: Node, after: Node) -> Node:
        """A non-empty run of optional members and then what follows them.

        ``alone`` is what follows if no member was written, ``after`` if one was. What is needed twice is a rule: the
        suffix after each member, so that the size stays linear in the number of members, and each member but the first.
        """
        heads = [alone]
        for index in range(len(members) - 1, -1, -1):
            node, _ = members[index]
            if index:
                node = self._named(f"{name}_member_{index}", node)
            heads.append(seq(node, after))
            if index:
                self._define(f"{name}_{index}", seq(optional(seq(COMMA, node)), after))
                after = Ref(f"{name}_{index}")
        return alt(*reversed(heads))

    # Why nothing is left ----------------------------------------------------------------------------------------

    def _culprit(self, goal: Goal, alive: set[str]) -> tuple[str, str | None]:
        """The innermost place that makes the goal unsatisfiable, as far as one place does, and whose name is required
        there."""
        seen: set[Goal] = set()
        place, name = pointer_of(goal), None
        while goal not in seen:
            seen.add(goal)
            place = self._blamed(goal) if goal else place
            inner = self._failing_part(self._reducer.shape(goal), alive)
            if inner is None:
                break
            goal, name = inner
        return place, name

    def _blamed(self, goal: Goal) -> str:
        """The place of a schema of the goal that is ``false``, if one is."""
        plain = (place for place in goal if place == pointer_of((place,)))
        return next((place for place in plain if self._reducer.schema_at(place) is False), pointer_of(goal))

    def _failing_part(self, shape: Shape, alive: set[str]) -> tuple[Goal, str | None] | None:
        """What a value has to have and cannot, and its name if it is a member."""
        if len(shape) != 1:
            return None
        parts: list[tuple[Goal, str | None]]
        match shape[0]:
            case Objects() as branch:
                parts = [(branch.member(name), name) for name in branch.required]
            case Arrays() as branch:
                parts = [(branch.item(index), None) for index in range(min(branch.minimum, branch.positions + 1))]
            case _:
                return None
        return next((part for part in parts if not self._is_productive(part[0], alive)), None)

    def _is_productive(self, goal: Goal, alive: set[str]) -> bool:
        shape = self._shape(goal)
        return any(branch in _FREE or self._names.get(branch, "value") in alive for branch in shape)


def _run(members: tuple[Node, Node], least: int, most: int | None, *, first: bool) -> Node:
    """So many items with commas between; also one before the first of them unless they are the ``first`` at all.

    With a second node, not the empty one, that is the last of them.
    """
    item, last = members
    if last != EPSILON:
        if most == 0:
            return NEVER
        before = repeat(seq(item, COMMA), max(0, least - 1), None if most is None else most - 1)
        return seq(before if first else seq(COMMA, before), last)
    if most is not None and most < least:
        return NEVER
    if not first or least == 0:
        return repeat(seq(COMMA, item), least, most)
    return seq(item, repeat(seq(COMMA, item), least - 1, None if most is None else most - 1))


def _counting(count: Count, found: int, index: int) -> list[tuple[Goal, int]]:
    """What the item at ``index`` may be for a count that has found so many: its demands, and how many it is then."""
    if index < count.start or (count.maximum is None and found >= count.minimum):
        return [((), found)]
    inside: list[tuple[Goal, int]] = [((count.place,), found + 1)]
    if count.maximum is None:
        return [*inside, ((), found)]  # not counting an item loses nothing where there is no maximum
    outside: list[tuple[Goal, int]] = [((negated(count.place),), found)]
    return [*inside, *outside] if found < count.maximum else outside


def _state_name(name: str, state: _State) -> str:
    return "_".join(map(str, [name, state[0], *state[1]]))
