"""Multiples of a number as a regular language of plain decimals.

A decimal with ``k`` digits after its point is a multiple of ``a / 10**d`` if its digits, read as one integer, are a
multiple of ``a / gcd(a, 10**(d - k))``. The part of such a factor that divides a power of ten only looks at the last
digits; the rest needs an automaton over all digits, which is practical for small primes only.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from infernix_plugin.grammar import regex
from infernix_plugin.grammar.automata import Automaton
from infernix_plugin.grammar.ir import NEVER, And, Literal, Node, Not, alt, chars, optional, repeat, seq
from infernix_plugin.grammar.json_schema.numbers import between
from infernix_plugin.grammar.json_schema.shape import Numbers
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.grammar.pool import Pool

MAX_PLACES = 9
"""Most decimal places of a step."""
_MAX_POSITIONS = 4096
_MAX_ENDINGS = 4000
_MAX_LISTED = 1000
_MAX_PERIOD = 10000
_EXACT_DIGITS = 15  # so many significant digits are told apart by binary64, so no fraction is read back as an integer
_MAX_EXACT_PLACES = 500
_DIGITS = "0123456789"


def stepped(numbers: Numbers, digits: int) -> Node | None:
    """The numbers of a branch with multiples, in plain decimals, or ``None`` if that needs too large a grammar.

    Few of them are listed. Otherwise the interval is intersected with the multiples.
    """
    listed = _listed(numbers)
    if listed is not None:
        return alt(*(Literal(_spelled(value)) for value in listed))
    wanted = [multiples(step) for step in sorted(numbers.multiples)]
    unwanted = [multiples(step) for step in sorted(numbers.others)]
    languages = [between(Numbers(numbers.integer, numbers.lower, numbers.upper), min(digits, _EXACT_DIGITS))]
    if not numbers.integer:
        languages.append(_expression(r"-?\d+(?:\.\d+)?"))
    for node in wanted:
        if node is None:
            return None
        languages.append(node)
    for node in unwanted:
        if node is None:
            return None
        languages.append(Not(node))
    return And(tuple(languages)) if _some_exist(numbers) else NEVER


def _steps(numbers: Numbers) -> list[Fraction]:
    return [*numbers.multiples, Fraction(1)] if numbers.integer else [*numbers.multiples]


def _listed(numbers: Numbers) -> list[Fraction] | None:
    """All of them, if they are few."""
    steps = _steps(numbers)
    if not steps or numbers.lower is None or numbers.upper is None:
        return None
    step = math.lcm(*(one.numerator for one in steps)) * Fraction(1, math.gcd(*(one.denominator for one in steps)))
    first, last = math.ceil(numbers.lower.value / step), math.floor(numbers.upper.value / step)
    if last - first > _MAX_LISTED:
        return None
    values = (index * step for index in range(first, last + 1))
    return [value for value in values if value in numbers and _is_written(value)]


def _is_written(value: Fraction) -> bool:
    return abs(value) < 2**63 and len(_spelled(value).replace(".", "").strip("-0")) <= 17


def _spelled(value: Fraction) -> str:
    places = next(places for places in range(_MAX_EXACT_PLACES) if (value * 10**places).denominator == 1)
    sign = "-" if value < 0 else ""
    return sign + _pointed(str(abs(int(value * 10**places))).zfill(places + 1), places)


def _some_exist(numbers: Numbers) -> bool:
    """Whether the multiples that are asked for are not all ruled out, looked up in one period."""
    steps = _steps(numbers)
    if not steps:
        return True
    scale = math.lcm(*(one.denominator for one in [*steps, *numbers.others]))
    step = math.lcm(*(int(one * scale) for one in steps))
    others = [int(one * scale) for one in numbers.others]
    period = math.lcm(step, *others) // step
    return any(all(index * step % other for other in others) for index in range(min(period, _MAX_PERIOD)))


@lru_cache(maxsize=64)
def multiples(step: Fraction) -> Node | None:
    """Decimals without exponent whose value is a multiple of ``step``, or ``None`` if that needs too large a grammar.

    Leading zeros are let through: intersect with numbers.
    """
    places = next((places for places in range(MAX_PLACES + 1) if (step * 10**places).denominator == 1), None)
    if places is None:
        return None
    factor = int(step * 10**places)
    options: list[Node] = []
    for written in range(places + 1):
        node = _divisible(factor // math.gcd(factor, 10 ** (places - written)), written)
        if node is None:
            return None
        zeros = Literal("0")
        if written < places:
            options.append(node)
        else:
            options.append(seq(node, repeat(zeros) if written else optional(seq(Literal("."), repeat(zeros, 1)))))
    return seq(optional(Literal("-")), alt(*options))


def _divisible(factor: int, places: int) -> Node | None:
    """Decimals with so many places whose digits are a multiple of ``factor`` together."""
    tens, rest = 1, factor
    for prime in (2, 5):
        while rest % prime == 0:
            tens, rest = tens * prime, rest // prime
    ending = next(length for length in range(64) if 10**length % tens == 0)
    if 10**ending // tens > _MAX_ENDINGS:
        return None
    prime_powers = _small_prime_powers(rest)
    if prime_powers is None:
        return None
    conditions = [_ending(tens, ending, places)]
    for prime_power in prime_powers:
        node = _residue_zero(prime_power)
        if node is None:
            return None
        conditions.append(node)
    return conditions[0] if len(conditions) == 1 else And(tuple(conditions))


def _small_prime_powers(number: int) -> list[int] | None:
    """The prime powers of an odd number, if they are small."""
    found = []
    for prime in (3, 5, 7, 11, 13):
        power = math.gcd(number, prime**64)
        if power > 1:
            found.append(power)
            number //= power
    return found if number == 1 else None


def _ending(tens: int, length: int, places: int) -> Node:
    """Decimals with so many places whose last ``length`` digits are a multiple of ``tens``, as are then all of them."""
    width = max(length, places + 1)
    values = range(0, 10 ** (width - 1), tens) if width > places + 1 else []
    texts = (str(value).zfill(places + 1) for value in values)
    shorter = [Literal(_pointed(text, places)) for text in texts if len(text) < width]
    return alt(*shorter, seq(repeat(chars(_DIGITS)), _last(tens, 0, width, places)))


def _pointed(digits: str, places: int) -> str:
    return f"{digits[: len(digits) - places]}.{digits[len(digits) - places :]}" if places else digits


def _last(tens: int, residue: int, left: int, places: int) -> Node:
    """The last ``left`` digits, which leave no rest if those before them leave ``residue``."""
    if not left:
        return Literal("")
    point = Literal("." if left == places else "")
    groups: dict[int, str] = {}
    for digit in range(10):
        rest = (residue + digit * 10 ** (left - 1)) % tens
        if -rest % tens >= 10 ** (left - 1):
            continue  # the digits to come are too small to make up for it
        groups[rest] = groups.get(rest, "") + str(digit)
    if left == 1:
        return seq(point, chars(groups.get(0, "")))
    return seq(
        point, alt(*(seq(chars(digits), _last(tens, rest, left - 1, places)) for rest, digits in groups.items()))
    )


def _residue_zero(modulus: int) -> Node | None:
    """Digits, anywhere with a point, that are a multiple of ``modulus``."""
    if modulus > 16:
        return None
    moves = []
    for residue in range(modulus):
        groups: dict[int, str] = {residue: "."}
        for digit in range(10):
            target = (residue * 10 + digit) % modulus
            groups[target] = groups.get(target, "") + str(digit)
        moves.append(tuple((chars(letters), target) for target, letters in groups.items()))
    return Automaton(tuple(moves), frozenset([0])).expression(Pool(), limit=_MAX_POSITIONS)


@lru_cache(maxsize=4)
def _expression(source: str) -> Node:
    return regex.parse(source, GrammarOptions())
