"""What becomes of a suite case: enforced, refused, a valid instance refused for a stated reason, or wrong.

A valid instance may be refused only for a reason that the documentation states: the language derives one spelling of a
value, with members in declared order and numbers in one form; integers are those of int64; ``format`` is asserted; host
names have no label that begins with ``xn--``. Each reason is verified by finding that an instance or a schema that
differs in nothing else is accepted; without one the case is wrong. An invalid instance may be accepted only where all
that the schema says is about content (``contentEncoding``), which draft-07 lets an implementation take as annotation.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import islice, permutations, product

from infernix_plugin.errors import (
    ConstraintError,
    InvalidContinuation,
    InvalidSchema,
    UnsatisfiableConstraint,
)
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.grammar.json_schema import vocabulary
from infernix_plugin.grammar.json_schema.keywords import ASSERTIONS
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.matching.compiled import CompiledGrammar
from infernix_plugin.matching.compiler import ConstraintCompiler
from infernix_plugin.matching.domain import TokenDomain
from tests.json_schema_suite.cases import Group, Number, files, groups, written

ENFORCED = "enforced"
NOTHING = "enforced: nothing satisfies it"
INVALID_ACCEPTED = "WRONG: invalid accepted"
VALID_REFUSED = "WRONG: valid refused"
KEYWORDS = {*ASSERTIONS, *vocabulary.STRUCTURE, *vocabulary.ANNOTATIONS, *vocabulary.REFUSED}
CONTENT = {"contentEncoding", "contentMediaType"}
MAX_ORDERS = 5000

DOMAIN = TokenDomain([bytes([byte]) for byte in range(256)] + [b""], stop=[256])
STRICT = ConstraintCompiler(DOMAIN)
LENIENT = ConstraintCompiler(DOMAIN, options=GrammarOptions(unknown_keywords="ignore"))


@dataclass(frozen=True)
class Refusal:
    """A schema that is refused: ``UnsupportedSchema``, for example, for the keyword at a pointer."""

    error: str
    keyword: str
    pointer: str


@dataclass(frozen=True)
class Verdict:
    """A group's outcome: the refusal of its schema, or those cases (by index) that are not simply right."""

    group: Group
    refusal: Refusal | None
    satisfiable: bool
    exceptions: dict[int, str]

    @property
    def outcome(self) -> str:
        """One line that says it all but the exceptions."""
        if self.refusal is None:
            return ENFORCED if self.satisfiable else NOTHING
        kind = "called malformed" if self.refusal.error == InvalidSchema.__name__ else "refused"
        return f"{kind}: {self.refusal.keyword} {self.refusal.pointer}"


@cache
def verdicts(file: str, compiler: ConstraintCompiler = STRICT) -> tuple[Verdict, ...]:
    """The verdicts on one file of the suite."""
    asserted = "optional/format/" in file
    return tuple(judge(group, formats_asserted=asserted, compiler=compiler) for group in groups(file))


def all_verdicts() -> dict[str, tuple[Verdict, ...]]:
    """The verdicts on every file, by its name."""
    return {file: verdicts(file) for file in files()}


def judge(group: Group, *, formats_asserted: bool, compiler: ConstraintCompiler = STRICT) -> Verdict:
    """Compile the schema and try every case.

    Args:
        group: the schema and its cases.
        formats_asserted: whether the cases themselves assert ``format``, so that it excuses nothing.
        compiler: the vocabulary and how schemas are read.
    """
    try:
        compiled = _compile(compiler, group.schema)
    except UnsatisfiableConstraint:
        missing = {index: VALID_REFUSED for index, case in enumerate(group.cases) if case.valid}
        return Verdict(group, None, False, missing)
    except ConstraintError as error:
        return Verdict(group, _refusal(error), True, {})
    exceptions: dict[int, str] = {}
    for index, case in enumerate(group.cases):
        accepted = _accepts(compiled, case.instance)
        if accepted and not case.valid:
            only = _is_only_about_content(group.schema)
            exceptions[index] = "invalid accepted: content not asserted" if only else INVALID_ACCEPTED
        elif case.valid and not accepted:
            reason = _reason(compiled, case.instance)
            if reason is None and not formats_asserted:
                free = _compile(compiler, _without_format(group.schema))
                reason = "format asserted" if _accepts(free, case.instance) else None
            exceptions[index] = f"valid refused: {reason}" if reason else VALID_REFUSED
    return Verdict(group, None, True, exceptions)


def _compile(compiler: ConstraintCompiler, schema: object) -> CompiledGrammar:
    return compiler.compile(OutputConstraint.json_schema(written(schema)))


def _refusal(error: ConstraintError) -> Refusal:
    """The keyword is where the pointer leads; where that is a whole schema, the first one the message names."""
    pointer = error.location or "#"
    named = [pointer.rpartition("/")[2], *re.findall(r"[$\w]+", error.message)]
    keyword = next((name for name in named if name in KEYWORDS), None)
    unknown = "(unknown)" if error.message.startswith("Unknown keyword") else "(none)"
    return Refusal(type(error).__name__, keyword or unknown, pointer)


def _is_only_about_content(schema: object) -> bool:
    return isinstance(schema, dict) and bool(CONTENT & schema.keys()) and schema.keys() <= CONTENT | {"$schema"}


def _accepts(compiled: CompiledGrammar, instance: object) -> bool:
    try:
        return compiled.session(prefix=written(instance).encode()).complete
    except InvalidContinuation:
        return False


def _reason(compiled: CompiledGrammar, instance: object) -> str | None:
    """Why a valid instance is refused, if changing nothing else makes it an accepted one."""
    if any(_accepts(compiled, _map_scalars(instance, change)) for change in (_shortest, _with_fraction)):
        return "number spelling"
    if _accepts(compiled, _map_scalars(instance, _within_int64)):
        return "integer beyond int64"
    if _accepts(compiled, _map_scalars(instance, _without_a_labels)):
        return "punycode label"
    if any(_accepts(compiled, order) for order in islice(_orders(instance), MAX_ORDERS)):
        return "key order"
    return None


def _shortest(value: object) -> object:
    """A number without fraction as an integer, any other in the shortest form of binary64."""
    if not isinstance(value, Number):
        return value
    exact = Fraction(value)
    return Number(int(exact) if exact.denominator == 1 and _in_int64(exact) else float(exact))


def _with_fraction(value: object) -> object:
    """A number as ``2.0``, where that is the same value."""
    if isinstance(value, Number) and Fraction(value) == Fraction(float(value)):
        return Number(float(value))
    return value


def _within_int64(value: object) -> object:
    """An integer beyond int64 as the last one inside."""
    exact = Fraction(value) if isinstance(value, Number) else Fraction(0)
    if exact.denominator > 1 or _in_int64(exact):
        return value
    return Number(2**63 - 1 if exact > 0 else -(2**63))


def _in_int64(exact: Fraction) -> bool:
    return -(2**63) <= exact < 2**63


def _without_a_labels(value: object) -> object:
    """A host name without the prefix that marks its labels as encoded Unicode."""
    if isinstance(value, str) and not isinstance(value, Number):
        return re.sub(r"(?<![^.])xn--", "xn-", value)
    return value


def _map_scalars(value: object, change: Callable[[object], object]) -> object:
    match value:
        case dict():
            return {name: _map_scalars(item, change) for name, item in value.items()}
        case list():
            return [_map_scalars(item, change) for item in value]
        case _:
            return change(value)


def _orders(value: object) -> Iterator[object]:
    """The value with the members of all its objects in every order."""
    match value:
        case dict():
            for names in permutations(value):
                for items in product(*(list(_orders(value[name])) for name in names)):
                    yield dict(zip(names, items, strict=True))
        case list():
            yield from map(list, product(*(list(_orders(item)) for item in value)))
        case _:
            yield value


def _without_format(schema: object) -> object:
    match schema:
        case dict():
            return {
                name: _without_format(item)
                for name, item in schema.items()
                if not (name == "format" and isinstance(item, str))
            }
        case list():
            return [_without_format(item) for item in schema]
        case _:
            return schema
