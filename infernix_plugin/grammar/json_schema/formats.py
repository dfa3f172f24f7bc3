r"""The formats that are enforced, each as the regular language of its specification.

The languages are over decoded characters. Where a specification also sets a length (a DNS name, the local part of a
mailbox) or relates distant parts (a leap second and its time zone), that is an intersection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import lru_cache

from infernix_plugin.grammar import regex
from infernix_plugin.grammar.ir import ANY_CHAR, And, Node, alt, repeat, seq
from infernix_plugin.grammar.json_schema.shape import Bound, Numbers
from infernix_plugin.grammar.options import GrammarOptions

_LARGEST_FLOAT = Fraction(2**128 - 2**104)


@lru_cache(maxsize=64)
def _expression(source: str) -> Node:
    return regex.parse(source, GrammarOptions())


def _up_to(length: int, node: Node) -> Node:
    return And((node, repeat(ANY_CHAR, 0, length)))


# Dates and times: RFC 3339, 5.6, 5.7 and appendix A --------------------------------------------------------------

_LEAP_YEAR = r"(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = (
    r"(?:\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
    rf"|{_LEAP_YEAR}-02-29)"
)
_HOUR, _SIXTY, _FRACTION = r"(?:[01]\d|2[0-3])", r"[0-5]\d", r"(?:\.\d+)?"
_DURATION_TIME = r"(?:T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S))"
_DURATION_DATE = r"(?:\d+D|\d+M(?:\d+D)?|\d+Y(?:\d+M(?:\d+D)?)?)"


def date() -> Node:
    """A day of the Gregorian calendar: RFC 3339 ``full-date``; 29 February in leap years only."""
    return _expression(_DATE)


def time() -> Node:
    """RFC 3339 ``full-time`` with its offset; second 60 only where it is 23:59 in UTC."""
    ordinary = _expression(rf"{_HOUR}:{_SIXTY}:{_SIXTY}{_FRACTION}(?:[Zz]|[+-]{_HOUR}:{_SIXTY})")
    return alt(ordinary, _leap_second())


def date_time() -> Node:
    """RFC 3339 ``date-time``: a date, ``T`` and a time with its offset."""
    return seq(date(), _expression("[Tt]"), time())


def _leap_second() -> Node:
    """Second 60, where the offset makes the hour and the minute those before midnight in UTC.

    The hours of both sides determine each other, and so do the minutes.
    """
    shape = rf"\d\d:\d\d:60{_FRACTION}"
    plus, minus = _expression(rf"{shape}\+\d\d:\d\d"), _expression(rf"{shape}-\d\d:\d\d")
    between = r"[\d:.]*"
    to_the_hour = (rf"{hour:02}:59{between}\+{(hour + 1) % 24:02}:00" for hour in range(24))
    same_hour = (rf"{hour:02}{between}\+{hour:02}:\d\d" for hour in range(24))
    next_minute = (rf"\d\d:{minute:02}{between}\+\d\d:{minute + 1:02}" for minute in range(59))
    counter_hour = (rf"{hour:02}{between}-{23 - hour:02}:\d\d" for hour in range(24))
    counter_minute = (rf"\d\d:{minute:02}{between}-\d\d:{59 - minute:02}" for minute in range(60))
    return alt(
        _expression(rf"23:59:60{_FRACTION}(?:[Zz]|-00:00)"),
        And((plus, _one_of(to_the_hour))),
        And((plus, _one_of(same_hour), _one_of(next_minute))),
        And((minus, _one_of(counter_hour), _one_of(counter_minute))),
    )


def _one_of(sources: Iterable[str]) -> Node:
    return _expression("|".join(sources))


def duration() -> Node:
    """RFC 3339, appendix A: weeks, or a run of neighbouring units."""
    return _expression(rf"P(?:{_DURATION_DATE}{_DURATION_TIME}?|{_DURATION_TIME}|\d+W)")


# Names and addresses of the Internet -----------------------------------------------------------------------------

_BYTE = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4 = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
_GROUP = r"[\dA-Fa-f]{1,4}"
_LAST_32_BITS = rf"(?:{_GROUP}:{_GROUP}|{_IPV4})"


def _label() -> str:
    """A label of RFC 1123 that does not begin with ``xn--``: those have rules of IDNA, which are not regular."""
    alphanumeric, any_of_them = r"[A-Za-z\d]", r"[A-Za-z\d-]"

    def then(length: int) -> str:
        return rf"(?:{any_of_them}{{0,{length - 1}}}{alphanumeric})?"

    after_xn = rf"(?:{alphanumeric}{then(60)}|-{alphanumeric}{then(59)})?"
    after_x = rf"(?:[A-MO-Za-mo-z\d]{then(61)}|-{any_of_them}{{0,60}}{alphanumeric}|[Nn]{after_xn})?"
    return rf"(?:[A-WYZa-wyz\d]{then(62)}|[Xx]{after_x})"


def _ipv6() -> str:
    """RFC 3986, 3.2.2: with ``::`` for the groups that are left out, at least one."""
    options = [rf"(?:{_GROUP}:){{6}}{_LAST_32_BITS}"]
    for following in range(5, -1, -1):  # whole groups after ``::``, before the last 32 bits
        before = rf"(?:(?:{_GROUP}:){{0,{4 - following}}}{_GROUP})?" if following < 5 else ""
        options.append(rf"{before}::(?:{_GROUP}:){{{following}}}{_LAST_32_BITS}")
    options.append(rf"(?:(?:{_GROUP}:){{0,5}}{_GROUP})?::{_GROUP}")
    options.append(rf"(?:(?:{_GROUP}:){{0,6}}{_GROUP})?::")
    return f"(?:{'|'.join(options)})"


_IPV6 = _ipv6()


def hostname() -> Node:
    """RFC 1123, 2.1: labels of at most 63 characters, at most 253 together; without labels that begin with `xn--`."""
    return _up_to(253, _expression(rf"{_label()}(?:\.{_label()})*"))


def email() -> Node:
    """RFC 5321 ``Mailbox``: a local part of at most 64 characters at a host name or an address in brackets."""
    word = r"[A-Za-z\d!#$%&'*+/=?^_`{|}~-]+"
    local = _expression(rf'{word}(?:\.{word})*|"(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\[\x20-\x7e])*"')
    domain = alt(hostname(), _expression(rf"\[(?:{_IPV4}|[Ii][Pp][Vv]6:{_IPV6})\]"))
    return seq(_up_to(64, local), _expression("@"), domain)


def ipv4() -> Node:
    """RFC 2673, 3.2: four decimal bytes without leading zeros."""
    return _expression(_IPV4)


def ipv6() -> Node:
    """RFC 4291, 2.2: an address in any of its text forms, without zone and prefix length."""
    return _expression(_IPV6)


def uuid() -> Node:
    """RFC 4122: groups of 8, 4, 4, 4 and 12 hexadecimal digits."""
    return _expression(r"[\dA-Fa-f]{8}(?:-[\dA-Fa-f]{4}){3}-[\dA-Fa-f]{12}")


# Identifiers -----------------------------------------------------------------------------------------------------


class _Uri:
    """RFC 3986, appendix A. An IRI (RFC 3987) has ``extra`` characters, in queries also ``private`` ones."""

    def __init__(self, extra: str = "", private: str = "") -> None:
        plain = rf"\-A-Za-z\d._~!$&'()*+,;={extra}"
        encoded = r"%[\dA-Fa-f]{2}"
        char = rf"(?:[{plain}:@]|{encoded})"
        literal = rf"\[(?:{_IPV6}|[Vv][\dA-Fa-f]+\.[A-Za-z\d._~!$&'()*+,;=:-]+)\]"
        authority = rf"(?:(?:[{plain}:]|{encoded})*@)?(?:{literal}|(?:[{plain}]|{encoded})*)(?::\d*)?"
        end = rf"(?:\?(?:[{plain}:@/?{private}]|{encoded})*)?(?:#(?:[{plain}:@/?]|{encoded})*)?"
        rooted = rf"//{authority}(?:/{char}*)*|/(?:{char}+(?:/{char}*)*)?"
        scheme = r"[A-Za-z][A-Za-z\d+.-]*"
        self.absolute = rf"{scheme}:(?:{rooted}|{char}+(?:/{char}*)*|){end}"
        self.relative = rf"(?:{rooted}|(?:[{plain}@]|{encoded})+(?:/{char}*)*|){end}"


_UCS = "\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef" + "".join(
    f"{chr((plane << 16) + (0x1000 if plane == 14 else 0))}-{chr((plane << 16) + 0xFFFD)}" for plane in range(1, 15)
)
_PRIVATE = "\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"


def uri() -> Node:
    """RFC 3986 ``URI``: with a scheme."""
    return _expression(_Uri().absolute)


def uri_reference() -> Node:
    """RFC 3986 ``URI-reference``: with a scheme, or relative."""
    return _expression(f"{_Uri().absolute}|{_Uri().relative}")


def iri() -> Node:
    """RFC 3987 ``IRI``: a URI that may hold characters outside ASCII."""
    return _expression(_Uri(_UCS, _PRIVATE).absolute)


def iri_reference() -> Node:
    """RFC 3987 ``IRI-reference``: with a scheme, or relative."""
    return _expression(f"{_Uri(_UCS, _PRIVATE).absolute}|{_Uri(_UCS, _PRIVATE).relative}")


def json_pointer() -> Node:
    """RFC 6901: ``/`` before every step, ``~0`` and ``~1`` for ``~`` and ``/``."""
    return _expression(r"(?:/(?:[^/~]|~[01])*)*")


def relative_json_pointer() -> Node:
    """A number of steps up and then ``#`` or a JSON Pointer."""
    return _expression(r"(?:0|[1-9]\d*)(?:#|(?:/(?:[^/~]|~[01])*)*)")


def uri_template() -> Node:
    """RFC 6570: literal text and expressions in braces; its reserved operators are well-formed."""
    name = r"(?:\w|%[\dA-Fa-f]{2})(?:\.?(?:\w|%[\dA-Fa-f]{2}))*"
    variable = rf"{name}(?:\*|:[1-9]\d{{0,3}})?"
    expression = rf"\{{[+#./;?&=,!@|]?{variable}(?:,{variable})*\}}"
    literal = rf"[!#$&-;=?-\[\]_a-z~{_UCS}{_PRIVATE}]|%[\dA-Fa-f]{{2}}"
    return _expression(f"(?:{literal}|{expression})*")


FORMATS: dict[str, Callable[[], Node]] = {
    "date": date,
    "time": time,
    "date-time": date_time,
    "duration": duration,
    "email": email,
    "hostname": hostname,
    "ipv4": ipv4,
    "ipv6": ipv6,
    "uuid": uuid,
    "uri": uri,
    "uri-reference": uri_reference,
    "iri": iri,
    "iri-reference": iri_reference,
    "json-pointer": json_pointer,
    "relative-json-pointer": relative_json_pointer,
    "uri-template": uri_template,
}
"""Every enforced format of strings and the function that makes its language."""


NUMBER_FORMATS: dict[str, Numbers] = {
    "int32": Numbers(True, Bound(Fraction(-(2**31))), Bound(Fraction(2**31 - 1))),
    "int64": Numbers(True, Bound(Fraction(-(2**63))), Bound(Fraction(2**63 - 1))),
    "float": Numbers(False, Bound(-_LARGEST_FLOAT), Bound(_LARGEST_FLOAT)),
    "double": Numbers(),
}
"""OpenAPI's formats of numbers. Every number that is generated has a finite binary64 value anyway."""

FREE_FORMATS = {
    "byte": "OpenAPI: base64, later written as `contentEncoding`; describes what a string holds, as that does.",
    "binary": "OpenAPI: every string.",
    "password": "OpenAPI: every string.",
}
"""OpenAPI's formats that assert nothing."""

REFUSED_FORMATS = {
    "regex": "ECMAScript expressions nest, so no regular grammar describes them",
    "idn-email": "use email for ASCII addresses, or pattern",
    "idn-hostname": "use hostname for ASCII names, or pattern",
}
"""Formats of JSON Schema that are not enforced, with advice."""


@lru_cache(maxsize=len(FORMATS))
def language(name: str) -> Node:
    """The strings of a format of :data:`FORMATS`."""
    return FORMATS[name]()
