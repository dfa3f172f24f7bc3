"""Every format against a checker that knows nothing of grammars: by example, by sampling and by mutation."""

import ipaddress
import json
import random
import re
import uuid
from datetime import date, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infernix_plugin.errors import UnsatisfiableConstraint, UnsupportedSchema
from infernix_plugin.grammar.ir import Grammar
from infernix_plugin.grammar.json_schema import formats, lower
from infernix_plugin.grammar.options import GrammarOptions
from tests.oracles.ir_matcher import in_language, matches
from tests.oracles.ir_sampler import NotSampledError, Sampler

OPTIONS = GrammarOptions()
IGNORING = GrammarOptions(unknown_keywords="ignore")


def is_date(text):
    if not re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return False
    year, month, day = map(int, text.split("-"))
    try:
        date(year or 400, month, day)  # the calendar repeats after 400 years, and datetime has no year 0
    except ValueError:
        return False
    return True


def is_time(text):
    found = re.fullmatch(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]+)?(?:[zZ]|([+-])([0-9]{2}):([0-9]{2}))", text)
    if not found:
        return False
    hour, minute, second = map(int, found.group(1, 2, 3))
    offset = timedelta(hours=int(found[6] or 0), minutes=int(found[7] or 0))
    if hour > 23 or minute > 59 or second > 60 or int(found[6] or 0) > 23 or int(found[7] or 0) > 59:
        return False
    utc = timedelta(hours=hour, minutes=minute) - (-offset if found[5] == "-" else offset)
    return second < 60 or utc % timedelta(days=1) == timedelta(hours=23, minutes=59)


def is_date_time(text):
    day, mark, rest = text[:10], text[10:11], text[11:]
    return is_date(day) and mark in ("T", "t") and is_time(rest)


def is_duration(text):
    if not re.fullmatch(r"P([0-9]+[YMWD])*(T([0-9]+[HMS])+)?", text) or text == "P":
        return False
    day, _, clock = text[1:].partition("T")
    units, parts = re.sub("[0-9]", "", day), re.sub("[0-9]", "", clock)
    return (units == "W" and not parts) or (units in "YMD" and parts in "HMS" and bool(units + parts))


def is_hostname(text):
    labels = text.split(".")
    return (
        len(text) <= 253
        and re.fullmatch("[A-Za-z0-9.-]+", text) is not None
        and all(0 < len(label) < 64 and label.strip("-") == label for label in labels)
        and not any(label.lower().startswith("xn--") for label in labels)
    )


def is_ipv4(text):
    try:
        return text.isascii() and str(ipaddress.IPv4Address(text)) == text
    except ValueError:
        return False


def is_ipv6(text):
    try:
        return text.isascii() and "%" not in text and bool(ipaddress.IPv6Address(text).packed)
    except ValueError:
        return False


def is_email(text):
    local, _, domain = text.rpartition("@")
    quoted = re.fullmatch(r'"([ -~])*"', local) and not re.search(r'[\\"]', re.sub(r"\\.", "", local[1:-1]))
    word = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
    plain = local and all(re.fullmatch(f"{word}+", part) for part in local.split("."))
    if len(local) > 64 or not (quoted or plain):
        return False
    if domain.startswith("[") and domain.endswith("]"):
        inside = domain[1:-1]
        return is_ipv6(inside[5:]) if inside[:5].lower() == "ipv6:" else is_ipv4(inside)
    return is_hostname(domain)


def is_uuid(text):
    try:
        return str(uuid.UUID(text)) == text.lower() and text.isascii()
    except ValueError:
        return False


def is_uri_reference(text):
    """RFC 3986, appendix B, and the characters of each part."""
    scheme, authority, path, query, fragment = re.fullmatch(
        r"(?:([^:/?#]+):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", text, re.DOTALL
    ).groups()

    def made_of(part, letters):
        return re.fullmatch(rf"(?:[A-Za-z0-9._~!$&'()*+,;={letters}-]|%[0-9A-Fa-f]{{2}})*", part or "") is not None

    if authority is not None:
        user, _, place = authority.rpartition("@")
        found = re.fullmatch(r"(\[[^\]]*\]|[^:\[\]]*)(?::[0-9]*)?", place)
        if not found or not made_of(user, ":"):
            return False
        inside = found[1][1:-1]
        future = re.fullmatch(r"[vV][0-9A-Fa-f]+\.[A-Za-z0-9._~!$&'()*+,;=:-]+", inside)
        if not (is_ipv6(inside) or future if found[1].startswith("[") else made_of(found[1], "")):
            return False
    return (
        (scheme is None or re.fullmatch("[A-Za-z][A-Za-z0-9+.-]*", scheme) is not None)
        and (scheme is not None or not text.startswith(":"))
        and made_of(path, ":@/")
        and made_of(query, ":@/?")
        and made_of(fragment, ":@/?")
    )


def is_uri(text):
    return is_uri_reference(text) and re.match("[^:/?#]+:", text) is not None


def is_json_pointer(text):
    return (not text or text.startswith("/")) and "~" not in text.replace("~0", "").replace("~1", "")


def is_relative_json_pointer(text):
    found = re.match("0|[1-9][0-9]*", text)
    return found is not None and (text[found.end() :] == "#" or is_json_pointer(text[found.end() :]))


CHECKERS = {
    "date": (is_date, ["2024-02-29", "2000-02-29", "1999-12-31", "0000-02-29"]),
    "time": (is_time, ["23:59:60Z", "01:29:60.5+01:30", "15:59:60-08:00", "23:59:60+00:00", "08:30:06.28+12:59"]),
    "date-time": (is_date_time, ["1998-12-31T23:59:60z", "2024-02-29t00:00:00.1-23:59"]),
    "duration": (is_duration, ["P4DT12H30M5S", "P1Y2M3D", "P4W", "PT1M", "P1M"]),
    "email": (is_email, ["a.b@example.org", '"a b\\""@x', "a@[127.0.0.1]", "a@[IPv6:::1]", f"{'a' * 64}@b"]),
    "hostname": (is_hostname, ["www.example.com", "a--b", "x", "X-n", "xn", "xn-a", "xnn--b", f"{'x' * 63}.1"]),
    "ipv4": (is_ipv4, ["255.249.199.99", "0.0.0.0"]),
    "ipv6": (is_ipv6, ["::", "::1", "1::", "1:2:3:4:5:6:7:8", "1::d6:192.168.0.1", "1:2:3::8", "::2:3:4:5:6:7:8"]),
    "uuid": (is_uuid, ["2eb8aa08-AA98-11ea-b4aa-73b441d16380"]),
    "uri": (is_uri, ["http://u:p@[::1]:80/a//b?c#d", "mailto:a@b", "urn:", "a:/", "x://[v1.a]/%41"]),
    "uri-reference": (is_uri_reference, ["", "//h/p", "a/b:c", "./a:b", "?q", "#f", "http:"]),
    "json-pointer": (is_json_pointer, ["", "/", '/a~1b~0/"\u00e9\n']),
    "relative-json-pointer": (is_relative_json_pointer, ["0#", "12/a", "1"]),
}
LETTERS = '0159:.-+/TtZzPDMYWHSax~@[]%"\\#? \u0661\u00e9'


@pytest.mark.parametrize("name", CHECKERS)
def test_examples_and_samples_have_the_format(name):
    checker, examples = CHECKERS[name]
    language = formats.language(name)
    for text in examples:
        assert checker(text)
        assert in_language(language, text), text
    sampler = Sampler(Grammar({"root": language}), random.Random(5))
    drawn = 0
    for _ in range(60):
        try:
            text = sampler.draw()
        except NotSampledError:
            continue
        assert checker(text), text
        drawn += 1
    assert drawn > 20


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_neighbours_of_members_are_members_exactly_when_they_have_the_format(data):
    name = data.draw(st.sampled_from(sorted(CHECKERS)))
    checker, examples = CHECKERS[name]
    text = data.draw(st.sampled_from(examples))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.sampled_from(["", *LETTERS])) + text[at + data.draw(st.integers(0, 1)) :]
    assert in_language(formats.language(name), text) == bool(checker(text)), (name, text)


@settings(max_examples=300, deadline=None)
@given(
    st.integers(0, 23), st.integers(0, 59), st.sampled_from("+-"), st.integers(0, 23), st.integers(0, 59), st.booleans()
)
def test_leap_seconds_stand_before_midnight_in_utc(hour, minute, sign, offset_hours, offset_minutes, fitting):
    if fitting:
        local = 23 * 60 + 59 + (1 if sign == "+" else -1) * (60 * offset_hours + offset_minutes)
        hour, minute = local // 60 % 24, local % 60
    text = f"{hour:02}:{minute:02}:60{sign}{offset_hours:02}:{offset_minutes:02}"
    assert in_language(formats.language("time"), text) == is_time(text)
    assert is_time(text) or not fitting


@pytest.mark.parametrize("year", [0, 4, 1900, 2000, 2023, 2024, 2100])
def test_every_day_of_a_year_is_a_date_and_no_other(year):
    language = formats.language("date")
    for month in range(14):
        for day in range(33):
            text = f"{year:04}-{month:02}-{day:02}"
            assert in_language(language, text) == is_date(text), text


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("iri", ["http://\u00e9\U00010000/?\ue000", "a:"], ["http://\ue000/", "\u00e9:", "a:\ufffe"]),
        ("iri-reference", ["\u00e9", "//\u00e9"], ["a b"]),
        ("uri-template", ["{+a,b*}/{x:12}\u00e9%41", ""], ["{", "{a:0}", "a b", "{a..b}", "}", "%4", "{}"]),
    ],
)
def test_formats_without_an_independent_checker(name, inside, outside):
    language = formats.language(name)
    assert all(in_language(language, text) for text in inside)
    assert not any(in_language(language, text) for text in outside)


def test_every_format_is_tested():
    assert set(CHECKERS) | {"iri", "iri-reference", "uri-template"} == set(formats.FORMATS)


SCHEMAS = [
    ({"type": "string", "format": "date"}, ['"2024-02-29"'], ['"2025-02-29"', '"2025-02-30"']),
    ({"format": "date"}, ['"2024-02-29"', "1", "{}"], ['"x"']),
    (
        {"type": "string", "format": "date", "pattern": "^20", "maxLength": 10},
        ['"2024-02-29"'],
        ['"1999-01-01"', '"20"'],
    ),
    ({"format": "json-pointer", "maxLength": 2, "type": "string"}, ['"/\\n"', '"/\\""'], ['"/\n"', '"/ab"', '"a"']),
    ({"format": "email", "minLength": 6, "type": "string"}, ['"ab@c.d"'], ['"a@b.c"']),
    (
        {"type": "string", "allOf": [{"format": "hostname"}, {"format": "ipv4"}]},
        ['"1.2.3.4"'],
        ['"a"', '"1.2.3.400"', '"::"'],
    ),
    ({"enum": ["2024-01-01", "soon", 7], "format": "date"}, ['"2024-01-01"', "7"], ['"soon"']),
    ({"type": "integer", "format": "int32"}, ["2147483647", "-2147483648"], ["2147483648"]),
    ({"type": "number", "format": "float"}, ["1.5", "3e38"], ["4e38"]),
    ({"type": "number", "format": "double"}, ["1.5", "4e38"], []),
    ({"type": "string", "format": "password"}, ['"x"'], ["1"]),
    ({"oneOf": [{"type": "string", "format": "ipv4"}, {"type": "string", "format": "ipv6"}]}, ['"::"'], ['"x"']),
]


@pytest.mark.parametrize(("schema", "inside", "outside"), SCHEMAS)
def test_formats_in_schemas(schema, inside, outside):
    grammar = lower(json.dumps(schema), OPTIONS)
    assert [text for text in inside if not matches(grammar, text)] == []
    assert [text for text in outside if matches(grammar, text)] == []


def test_other_formats_are_refused_unless_unknown_names_are_ignored():
    for name, hint in [("dat", "date"), ("jsonschema", "pattern"), ("regex", "grammar")]:
        with pytest.raises(UnsupportedSchema) as caught:
            lower(json.dumps({"properties": {"a": {"format": name}}}), OPTIONS)
        assert caught.value.location == "#/properties/a/format"
        assert hint in caught.value.hint
    assert matches(lower('{"type": "string", "format": "jsonschema"}', IGNORING), '"x"')
    with pytest.raises(UnsupportedSchema):
        lower('{"format": "regex"}', IGNORING)


def test_a_format_and_a_length_may_contradict_each_other():
    with pytest.raises(UnsatisfiableConstraint):
        lower('{"type": "string", "format": "uuid", "maxLength": 35}', OPTIONS)
    with pytest.raises(UnsatisfiableConstraint):
        lower('{"type": "string", "allOf": [{"format": "uuid"}, {"format": "date"}]}', OPTIONS)
