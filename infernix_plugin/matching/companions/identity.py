"""What a JSON value is, apart from how it is written.

Two values are the same as soon as any reader may take them for the same: numbers by the binary64 number that they read
as, objects by their last member of each name and in any order, strings by their characters.

A string or a name is kept as its canonical spelling with the quotes, ``true``, ``false`` and ``null`` as their
spelling, a number as a float, an array as a tuple, an object as the frozenset of its members. No two of these are equal
unless the values are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

Identity = bytes | float | tuple["Identity", ...] | frozenset[tuple[bytes, "Identity"]]

WORDS = (b"true", b"false", b"null")

_DIGITS = 15  # any two numbers that read as the same binary64 number agree in so many digits, or are next to each other


def string_identity(spelled: bytes) -> bytes | None:
    """The string that is written as ``spelled``, quotes included; ``None`` if it is none."""
    try:
        if b"\\" not in spelled:
            spelled.decode()
            return spelled
        return json.dumps(json.loads(spelled), ensure_ascii=False).encode()
    except ValueError:
        return None


def string_text(identity: bytes) -> str:
    """The characters of a string or a name."""
    return str(json.loads(identity))


def number_identity(text: bytes) -> float | None:
    """The number that is written as ``text``; ``None`` if it is none."""
    try:
        return float(text)
    except ValueError:
        return None


def object_identity(members: Iterable[tuple[bytes, Identity]]) -> frozenset[tuple[bytes, Identity]]:
    """The object with these members, in which no name occurs twice."""
    return frozenset(members)


def member_of(identity: frozenset[tuple[bytes, Identity]], name: bytes) -> Identity | None:
    """The value of an object's member, or ``None`` if it has none of the name."""
    return next((value for known, value in identity if known == name), None)


def may_become(text: bytes, number: float) -> bool:
    """``False`` only if no number that is written as ``text`` and something more, or nothing, reads as ``number``."""
    magnitude = abs(number)
    if not 1e-300 < magnitude < 1e300:
        return True  # zeros, and what may round to zero or to infinity
    if text.startswith(b"-") != (number < 0):
        return False
    mantissa = text.lstrip(b"-").partition(b"e")[0].partition(b"E")[0]
    digits = mantissa.replace(b".", b"").lstrip(b"0")[:_DIGITS].decode()
    if not digits:
        return True
    whole = f"{magnitude:.{_DIGITS + 1}e}".replace(".", "")[:_DIGITS]
    start, rest = whole[: len(digits)], whole[len(digits) :]
    if digits == start:
        return True
    # Just below a number with only zeros to come, and just above one with only nines.
    below, above = _next(digits), _next(start)
    return (below == start and not rest.strip("0")) or (above == digits and not rest.strip("9"))


def _next(digits: str) -> str:
    """The digits of the next larger number, without those that are new at the end."""
    return str(int(digits) + 1)[: len(digits)]
