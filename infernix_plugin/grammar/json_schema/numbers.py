"""JSON numbers of an interval as regular grammars, digit by digit.

Every number here is bounded in length: integers lie within int64, and other numbers have at most ``digits``
significant digits and a finite binary64 value. A bound holds for the decimal number as written *and* for the
binary64 number that a parser makes of it: next to ``exclusiveMaximum: 1`` the text ``0.99999999999999999`` is out,
because it reads back as 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache

from infernix_plugin.grammar.ir import EPSILON, NEVER, Literal, Node, alt, chars, optional, repeat, seq
from infernix_plugin.grammar.json_schema.shape import Bound, Numbers

_DIGIT = chars("0123456789")
_NONZERO = chars("123456789")
_EXPONENT_MARK = chars("eE")
_INT64_MAX = 2**63 - 1
_LEADING_ZEROS = 6  # printers switch to an exponent after at most so many zeros behind the point
_LARGEST = Decimal("1.7976931348623157E+308")  # reads as the largest binary64 number
_SMALLEST = Decimal("4.9406564584124654E-324")  # reads as the smallest positive one


def any_integer() -> Node:
    """Every integer of int64."""
    return _signed_integers(-_INT64_MAX - 1, _INT64_MAX)


def any_number(digits: int) -> Node:
    """Every JSON number within the limits above, in any of its spellings with an exponent of up to three digits."""
    integer = _integers(0, _INT64_MAX)
    plain = _plain_fractions(digits)
    short = alt(Literal("0"), seq(_NONZERO, repeat(_DIGIT, 0, digits - 1)), plain)
    normal = seq(_DIGIT, optional(seq(Literal("."), repeat(_DIGIT, 1, digits - 1))))
    plus = optional(Literal("+"))
    hundreds = alt(seq(chars("012"), _DIGIT, _DIGIT), seq(Literal("30"), chars("01234567")))
    scientific = alt(
        seq(short, _EXPONENT_MARK, optional(chars("+-")), repeat(_DIGIT, 1, 2)),
        seq(normal, _EXPONENT_MARK, alt(seq(plus, hundreds), seq(Literal("-"), repeat(_DIGIT, 3, 3)))),
        seq(_mantissas(Decimal(1), _LARGEST.scaleb(-308), digits), _EXPONENT_MARK, plus, Literal("308")),
    )
    return seq(optional(Literal("-")), alt(integer, plain, scientific))


@lru_cache(maxsize=256)
def between(interval: Numbers, digits: int) -> Node:
    """The numbers of an interval; :data:`~infernix_plugin.grammar.ir.NEVER` if none can be written."""
    low, high = interval.integers
    integers = _signed_integers(
        max(-_INT64_MAX - 1, low if low is not None else -_INT64_MAX - 1),
        min(_INT64_MAX, high if high is not None else _INT64_MAX),
    )
    if interval.integer:
        return integers
    bottom = -_inward(_negated(interval.lower), digits)
    top = _inward(interval.upper, digits)
    negative = _decimals(max(-top, Decimal(0)), -bottom, digits)
    positive = _decimals(max(bottom, Decimal(0)), top, digits)
    return alt(integers, seq(Literal("-"), negative), positive)


def _negated(bound: Bound | None) -> Bound | None:
    return bound and Bound(-bound.value, bound.exclusive)


def _inward(bound: Bound | None, digits: int) -> Decimal:
    """The largest decimal of so many digits that satisfies an upper bound, as written and as read back.

    As written it is compared with the bound exactly. Read back it is compared with the bound read back, and with
    the exact bound too if that is an integer, since some validators keep integers exact.
    """
    if bound is None or bound.value > Fraction(_LARGEST):
        return _LARGEST
    if bound.value < -Fraction(_LARGEST):
        return Decimal("-Infinity")
    readings = {Fraction(float(bound.value))} | ({bound.value} if bound.value.denominator == 1 else set())
    limit = float(bound.value)
    while any(limit > reading or (bound.exclusive and limit == reading) for reading in readings):
        limit = math.nextafter(limit, -math.inf)
    if math.isinf(limit):
        return Decimal("-Infinity")
    above = math.nextafter(limit, math.inf)
    turn = Fraction(limit) + (Fraction(above) - Fraction(limit)) / 2 if above < math.inf else bound.value
    edge = min(turn, bound.value)
    down = Context(prec=digits, rounding=ROUND_FLOOR, Emin=-9999, Emax=9999)
    rounded = down.divide(Decimal(edge.numerator), Decimal(edge.denominator))
    while Fraction(rounded) > bound.value or float(rounded) > limit or (bound.exclusive and rounded == bound.value):
        rounded = rounded.next_minus(down)
    return rounded


# Decimals without a sign ----------------------------------------------------------------------------------------


def _decimals(low: Decimal, high: Decimal, digits: int) -> Node:
    """Unsigned numbers from ``low`` to ``high`` with a fraction or an exponent."""
    if low > high:
        return NEVER
    plain = [_plain_of_length(length, low, high, digits) for length in range(1, digits)]
    return alt(*plain, _scientific(max(low, _SMALLEST), high, digits))


def _plain_fractions(digits: int) -> Node:
    zero = seq(Literal("0."), repeat(Literal("0"), 0, _LEADING_ZEROS), repeat(_DIGIT, 1, digits))
    longer = (
        seq(_NONZERO, repeat(_DIGIT, length - 1, length - 1), Literal("."), repeat(_DIGIT, 1, digits - length))
        for length in range(1, digits)
    )
    return alt(zero, *longer)


def _plain_of_length(length: int, low: Decimal, high: Decimal, digits: int) -> Node:
    """Those with so many digits before the point. Zeros that lead the fraction of ``0.`` are not significant."""
    if length > 1:
        return _plain_range(length, (length - 1, digits - length), low, high)
    found = [_plain_range(1, (0, digits - 1), low, high)]
    if low <= 0 <= high:
        found.append(seq(Literal("0."), repeat(Literal("0"), 1, _LEADING_ZEROS + digits)))
    free = [
        zeros
        for zeros in range(_LEADING_ZEROS + 1)
        if low <= Decimal(1).scaleb(-zeros - 1) and high >= Decimal(1).scaleb(-zeros)
    ]
    if free:
        leading = repeat(Literal("0"), free[0], free[-1])
        found.append(seq(Literal("0."), leading, _NONZERO, repeat(_DIGIT, 0, digits - 1)))
    bounded = (zeros for zeros in range(_LEADING_ZEROS + 1) if zeros not in free)
    found.extend(_plain_range(1, (-zeros - 1, digits + zeros), low, high) for zeros in bounded)
    return alt(*found)


def _plain_range(length: int, form: tuple[int, int], low: Decimal, high: Decimal) -> Node:
    """Those whose first significant digit stands for ``10**form[0]``, with at most ``form[1]`` digits of fraction."""
    magnitude, places = form
    first = max(math.ceil(Fraction(low) * 10**places), 10 ** (magnitude + places))
    last = min(math.floor(Fraction(high) * 10**places), 10 ** (magnitude + places + 1) - 1)
    if first > last:
        return NEVER
    width = length + places
    return _Digits(str(first).zfill(width), str(last).zfill(width), length).node()


def _scientific(low: Decimal, high: Decimal, digits: int) -> Node:
    """Those with one digit other than zero before the point, and an exponent."""
    if low > high:
        return NEVER
    first, last = low.adjusted(), high.adjusted()
    least, most = low.scaleb(-first), high.scaleb(-last)
    whole = Decimal(10) - Decimal(1).scaleb(1 - digits)
    if first == last:
        pieces = [(least, most, first, last)]
    else:
        pieces = [
            (least, whole, first, first),
            (Decimal(1), whole, first + 1, last - 1),
            (Decimal(1), most, last, last),
        ]
    return alt(
        *(
            seq(_mantissas(smallest, largest, digits), _EXPONENT_MARK, _exponents(start, end))
            for smallest, largest, start, end in pieces
            if start <= end
        )
    )


def _mantissas(low: Decimal, high: Decimal, digits: int) -> Node:
    scale = 10 ** (digits - 1)
    first, last = math.ceil(Fraction(low) * scale), math.floor(Fraction(high) * scale)
    return _Digits(str(first).zfill(digits), str(last).zfill(digits), 1, whole=True).node()


def _exponents(low: int, high: int) -> Node:
    """Exponents of an interval; a one-digit exponent may have one leading zero, as most printers write it."""

    def padded(start: int, end: int) -> Node:
        if start > end:
            return NEVER
        short = _integers(max(start, 0), min(end, 9))
        return alt(_integers(start, end), seq(Literal("0"), short))

    negative = padded(max(1, -high), -low)
    return alt(seq(optional(Literal("+")), padded(max(low, 0), high)), seq(Literal("-"), negative))


# Integers -------------------------------------------------------------------------------------------------------


def _signed_integers(low: int, high: int) -> Node:
    return alt(seq(Literal("-"), _integers(max(1, -high), -low)), _integers(max(low, 0), high))


def _integers(low: int, high: int) -> Node:
    """Unsigned integers from ``low`` to ``high`` without leading zeros."""
    found: list[Node] = [Literal("0")] if low <= 0 <= high else []
    whole: list[int] = []
    for length in range(max(1, len(str(max(low, 1)))), len(str(max(high, 0))) + 1):
        first, last = max(low, 10 ** (length - 1)), min(high, 10**length - 1)
        if (first, last) == (10 ** (length - 1), 10**length - 1):
            whole.append(length)
        elif first <= last:
            found.append(_Digits(str(first), str(last), length).node())
    if whole:
        found.append(seq(_NONZERO, repeat(_DIGIT, whole[0] - 1, whole[-1] - 1)))
    return alt(*found)


# Digit strings --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Digits:
    """Digit strings from ``low`` to ``high``, both of one width, with a point after ``point`` digits.

    Where digits follow the point, at least one is written and trailing zeros may be left out; ``whole`` lets the
    point and everything after it be left out too.
    """

    low: str
    high: str
    point: int
    whole: bool = False

    def node(self) -> Node:
        return self._rest(0, True, True)

    def _rest(self, index: int, at_low: bool, at_high: bool) -> Node:
        """What may follow ``index`` digits; ``at_low`` and ``at_high``: they are those of the bound so far."""
        width = len(self.low)
        if index == width:
            return EPSILON
        at_low = at_low and self.low[index:].strip("0") != ""  # a rest of zeros bounds nothing from below
        at_high = at_high and self.high[index:].strip("9") != ""
        ended = index > self.point or (index == self.point and self.whole)
        may_end = ended and not at_low
        mark = Literal(".") if index == self.point else EPSILON
        if not at_low and not at_high:
            if index < self.point:
                return seq(repeat(_DIGIT, self.point - index, self.point - index), self._rest(self.point, False, False))
            more = seq(mark, repeat(_DIGIT, 1, width - index))
            return optional(more) if may_end else more
        first = int(self.low[index]) if at_low else 0
        last = int(self.high[index]) if at_high else 9
        branches: list[Node] = []
        if first == last:
            branches.append(seq(Literal(str(first)), self._rest(index + 1, at_low, at_high)))
        else:
            inner = range(first + at_low, last + 1 - at_high)
            if at_low:
                branches.append(seq(Literal(str(first)), self._rest(index + 1, True, False)))
            if inner:
                branches.append(seq(chars("".join(map(str, inner))), self._rest(index + 1, False, False)))
            if at_high:
                branches.append(seq(Literal(str(last)), self._rest(index + 1, False, True)))
        more = seq(mark, alt(*branches))
        return alt(EPSILON, more) if may_end else more
