"""What users of structured outputs reported in area A (wrong, loose, hanging or crashing constraints), put right.

The ids are those of the project's log of public threads; the inputs are minimal and our own. Where a report is about
cost, the test shows the property that bounds it, never a time.
"""

import json
from itertools import permutations

import numpy as np
import pytest

from infernix_plugin import (
    ConstraintCompiler,
    ConstraintTooLarge,
    InvalidGrammar,
    InvalidRegex,
    OutputConstraint,
    Session,
    TokenDomain,
    UnsatisfiableConstraint,
    UnsupportedSchema,
)
from infernix_plugin.matching import Outcome

STOP = 256
DOMAIN = TokenDomain([bytes([byte]) for byte in range(256)] + [b""], stop=[STOP])
COMPILER = ConstraintCompiler(DOMAIN, max_compile_seconds=300.0)
STRING, INTEGER = {"type": "string"}, {"type": "integer"}
TREE = {
    "$ref": "#/$defs/N",
    "$defs": {
        "N": {
            "type": "object",
            "properties": {"v": INTEGER, "c": {"type": "array", "items": {"$ref": "#/$defs/N"}}},
            "required": ["v"],
        }
    },
}


def schema(document: object) -> OutputConstraint:
    """The constraint of a JSON Schema."""
    return OutputConstraint.json_schema(document if isinstance(document, str) else json.dumps(document))


def allowed(session: Session) -> set[int]:
    """The tokens that the mask lets through."""
    row = np.zeros(DOMAIN.mask_words, dtype=np.int32)
    session.fill_mask(row)
    return set(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist())


def write(constraint: OutputConstraint, text: str) -> Session | None:
    """A session after the text, token by token, or ``None`` at the first token that a mask or the matcher refuses."""
    session = COMPILER.compile(constraint).session()
    for byte in text.encode():
        if byte not in allowed(session):
            assert not session.accept(byte)
            return None
        assert session.accept(byte)
    return session


def is_output(constraint: OutputConstraint, text: str) -> bool:
    """Whether the text can be written and the output may end there."""
    session = write(constraint, text)
    return session is not None and STOP in allowed(session) and session.accept(STOP)


EXACT = [
    (
        "A3: anyOf beside properties and additionalProperties",
        schema(
            {
                "type": "object",
                "properties": {"a": INTEGER},
                "additionalProperties": False,
                "anyOf": [{"required": ["a"]}],
            }
        ),
        ['{"a":1}'],
        ['{"zz":1}', "{}", '{"a":1,"zz":1}'],
    ),
    (
        "A4: two branches of allOf",
        schema(
            {
                "allOf": [
                    {"$ref": "#/$defs/B"},
                    {"type": "object", "properties": {"y": STRING}, "required": ["y"]},
                ],
                "$defs": {
                    "B": {
                        "type": "object",
                        "properties": {"x": {"type": "integer", "minimum": 10}},
                        "required": ["x"],
                    }
                },
            }
        ),
        ['{"x":12,"y":"q"}'],
        ['{"x":1}', '{"x":12}', '{"x":1,"y":"q"}'],
    ),
    (
        "A5: pattern with maxLength",
        schema({"type": "string", "pattern": "^[a-z]+$", "maxLength": 3}),
        ['"a"', '"abc"'],
        ['"abcd"', '""', '"A"'],
    ),
    (
        "A5: format with maxLength",
        schema({"type": "string", "format": "ipv4", "maxLength": 7}),
        ['"1.2.3.4"'],
        ['"10.2.3.4"', '"1.2.3"'],
    ),
    (
        "A6: propertyNames beside additionalProperties",
        schema({"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}, "additionalProperties": INTEGER}),
        ['{"a":1}', "{}"],
        ['{"a":"x"}', '{"A":1}'],
    ),
    (
        "A6: anchors in both alternatives",
        schema({"type": "string", "pattern": "^a$|^b$"}),
        ['"a"', '"b"'],
        ['"ab"', '"c"'],
    ),
    (
        "A6: an anchor in one alternative",
        schema({"type": "string", "pattern": "^a|b$"}),
        ['"axx"', '"xxb"', '"b"'],
        ['"xa"', '"bx"'],
    ),
    (
        "A7: patternProperties beside properties",
        schema(
            {
                "type": "object",
                "properties": {"name": STRING},
                "required": ["name"],
                "patternProperties": {"^g_": INTEGER},
                "additionalProperties": False,
            }
        ),
        ['{"name":"x"}', '{"name":"x","g_1":2}'],
        ['{"name":"x","h":2}', '{"name":"x","g_1":"s"}', '{"g_1":2}'],
    ),
    (
        "A8: patternProperties over a declared name",
        schema(
            {
                "type": "object",
                "properties": {"score": INTEGER},
                "required": ["score"],
                "patternProperties": {"^score$": {"type": "integer", "minimum": 5}},
                "additionalProperties": False,
            }
        ),
        ['{"score":5}', '{"score":12}'],
        ['{"score":1}', "{}", '{"score":5,"score":5}'],
    ),
    ("A9: above zero", schema({"type": "number", "exclusiveMinimum": 0}), ["0.1", "3", "2.5"], ["0", "-1", "-0.1"]),
    ("A9: from 1 to 5", schema({"type": "number", "minimum": 1, "maximum": 5}), ["1", "4.7", "5"], ["5.7", "0.9", "6"]),
    ("A9: from -5", schema({"type": "integer", "minimum": -5}), ["-5", "-3", "0", "70"], ["-6", "-30", "1.5"]),
    (
        "A10: overlapping oneOf",
        schema({"oneOf": [{"type": "integer", "minimum": 0}, {"type": "integer", "maximum": 10}]}),
        ["-3", "20", "11", "-1"],
        ["5", "0", "10"],
    ),
    (
        "A11: days that are not in the calendar",
        schema({"type": "string", "format": "date"}),
        ['"2024-02-29"', '"2000-02-29"', '"2025-02-28"'],
        ['"2025-02-29"', '"2025-02-30"', '"1900-02-29"', '"2025-04-31"'],
    ),
    (
        "A11: leap seconds",
        schema({"type": "string", "format": "time"}),
        ['"23:59:60Z"', '"01:29:60+01:30"'],
        ['"22:59:60Z"', '"23:59:61Z"'],
    ),
    (
        "A11: over-long host names",
        schema({"type": "string", "format": "hostname"}),
        ['"' + "a" * 63 + '"', '"' + ".".join(["a" * 49] * 5) + '"'],
        ['"' + "a" * 64 + '"', '"' + ".".join(["a" * 49] * 6) + '"'],
    ),
    (
        "A12: Chinese members of an enum",
        schema({"enum": ["在线", "离线"]}),
        ['"在线"', '"离线"'],
        ['"在"', '"线"', '"在离"'],
    ),
    ("A13: raw UTF-8 in an enum", schema({"enum": ["开心", "难过"]}), ['"开心"', '"难过"'], ['"开过"', '"å¼"']),
    (
        "A14: a choice with control characters, quotes and backslashes",
        OutputConstraint.choice(["yes", "no\nplease", "a\rb", "\0", 'q"\\n\t', ""]),
        ["yes", "no\nplease", "a\rb", "\0", 'q"\\n\t', ""],
        ["no", "no\\nplease", "yes\n", "a\nb", 'q"\n\t'],
    ),
    (
        "A15: the order of the schema",
        schema(
            {"type": "object", "properties": {"reasoning": STRING, "label": STRING}, "required": ["label", "reasoning"]}
        ),
        ['{"reasoning":"r","label":"l"}'],
        ['{"label":"l","reasoning":"r"}', '{"reasoning":"r"}'],
    ),
    (
        "A16: a tree",
        schema(TREE),
        ['{"v":1}', '{"v":1,"c":[]}', '{"v":1,"c":[{"v":2,"c":[{"v":3}]},{"v":4}]}'],
        ['{"c":[]}', '{"v":1,"c":[{"c":[]}]}'],
    ),
    (
        "A23: a long string inside",
        schema(
            {
                "type": "object",
                "properties": {"o": {"type": "object", "properties": {"s": {"type": "string", "maxLength": 2000}}}},
            }
        ),
        ['{"o":{"s":"' + "x" * 2000 + '"}}', "{}"],
        ['{"o":{"s":"' + "x" * 2001 + '"}}'],
    ),
    ("A23: no items", schema({"type": "array", "items": STRING, "maxItems": 0}), ["[]", "[ ]"], ['["a"]', "[1]"]),
    ("A25: left recursion", OutputConstraint.grammar('root ::= root "a" | "b"'), ["b", "ba", "baa"], ["", "a", "bb"]),
    ("A25: any character", OutputConstraint.grammar('root ::= . "b"'), ["ab", "bb", "线b"], ["b", "a", "abb"]),
    ("A26: not over an enum", schema({"type": "string", "not": {"enum": ["x"]}}), ['"y"', '"xx"', '""'], ['"x"', "1"]),
    ("A26: an enum of several types", schema({"type": "string", "enum": ["a", 1]}), ['"a"'], ["1", '"1"']),
    (
        "A26: dependentRequired",
        schema({"type": "object", "properties": {"a": INTEGER, "b": INTEGER}, "dependentRequired": {"a": ["b"]}}),
        ['{"a":1,"b":2}', '{"b":2}', "{}"],
        ['{"a":1}', '{"a":1,"c":2}'],
    ),
    (
        "A26: if and then",
        schema(
            {
                "type": "object",
                "properties": {"k": {"enum": ["x", "y"]}, "n": INTEGER},
                "required": ["k"],
                "additionalProperties": False,
                "if": {"properties": {"k": {"const": "x"}}},
                "then": {"required": ["n"]},
            }
        ),
        ['{"k":"x","n":1}', '{"k":"y"}', '{"k":"y","n":1}'],
        ['{"k":"x"}', '{"n":1}'],
    ),
    (
        "A26: contains",
        schema({"type": "array", "items": {"type": ["integer", "string"]}, "contains": INTEGER}),
        ["[1]", '["a",1,"b"]'],
        ["[]", '["a"]'],
    ),
    (
        "A26: unique items of a list",
        schema({"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True}),
        ["[]", "[1,2]", "[2,1]"],
        ["[1,1]", "[2,1,2]"],
    ),
    (
        "A27: an escape is one character",
        schema({"type": "string", "maxLength": 1}),
        [r'"\n"', '"😀"', '"a"', '""'],
        [r'"\n\n"', '"😀😀"', '"ab"'],
    ),
]


@pytest.mark.parametrize(("constraint", "members", "others"), [row[1:] for row in EXACT], ids=[row[0] for row in EXACT])
def test_exactly_the_members(constraint, members, others):
    assert [text for text in members if not is_output(constraint, text)] == []
    assert [text for text in others if is_output(constraint, text)] == []


REFUSED = [
    (
        "A16: a definition that is only itself",
        schema({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}),
        UnsatisfiableConstraint,
        "#",
        "leads back to itself",
    ),
    (
        "A17: nested ten thousand deep",
        schema('{"type":"array","items":' * 10_000 + "{}" + "}" * 10_000),
        ConstraintTooLarge,
        "1:",
        "max_nesting",
    ),
    ("A18: a broken regex", OutputConstraint.regex("["), InvalidRegex, "offset", "class"),
    (
        "A24: an empty interval",
        schema({"type": "integer", "minimum": 3, "maximum": 2}),
        UnsatisfiableConstraint,
        "#",
        "no json value",
    ),
    (
        "A24: no integer between",
        schema(
            {
                "type": "object",
                "properties": {"n": {"type": "integer", "exclusiveMinimum": 2, "exclusiveMaximum": 3}},
                "required": ["n"],
            }
        ),
        UnsatisfiableConstraint,
        "#/properties/n",
        "no json value",
    ),
    ("A25: an undefined rule", OutputConstraint.grammar('root ::= "a" missing'), InvalidGrammar, "1:", "missing"),
]


@pytest.mark.parametrize(
    ("constraint", "error", "place", "says"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_a_clear_refusal_and_the_next_request_works(constraint, error, place, says):
    with pytest.raises(error) as refused:
        COMPILER.compile(constraint)
    assert (refused.value.location or "").startswith(place)
    assert says in str(refused.value).lower()
    assert is_output(schema({"const": 1}), "1")


def test_a1_whitespace_is_bounded_and_both_layouts_are_legal():
    constraint = schema({"type": "object", "properties": {"a": INTEGER}, "required": ["a"]})
    assert is_output(constraint, '{"a":1}')
    assert is_output(constraint, json.dumps({"a": 1}, indent=8))
    assert is_output(constraint, "{" + " " * 32 + '"a":1}')
    assert write(constraint, "{" + " " * 33) is None
    for start in ("{", '{"a"', '{"a":', '{"a":1', '{"a":1,'):
        session = write(constraint, start)
        assert session is not None
        blanks = sum(1 for _ in range(200) if session.accept(ord(" ")))
        assert 0 < blanks <= 32
        assert allowed(session)
    session = write(constraint, '{"a":1}')
    assert session is not None
    assert allowed(session) == {STOP}


def test_a2_numbers_are_bounded_and_may_end_after_every_digit():
    session = COMPILER.compile(schema({})).session()
    digits = 0
    while session.accept(ord("1")):
        digits += 1
        assert session.complete
        assert STOP in allowed(session)
    assert 17 <= digits < 60
    fraction = write(schema({}), "1.")
    assert fraction is not None
    assert sum(1 for _ in range(60) if fraction.accept(ord("1"))) < 60
    assert all(is_output(schema({}), text) for text in ("null", "true", '"a"', "[1, {}]", '{"a": [0.5]}', "-1e9"))


def test_a16_a_tree_of_any_depth():
    deep = '{"v":1,"c":[' * 100 + '{"v":2}' + "]}" * 100
    assert is_output(schema(TREE), deep)
    assert not is_output(schema(TREE), deep[:-1])


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a19_requests_in_any_order_get_their_own_exact_engine(order):
    requests = [
        (schema({"type": "object", "properties": {"a": INTEGER}, "required": ["a"]}), '{"a":1}', '{"a":"x"}'),
        (schema({"type": "array", "items": [STRING]}), '["a",1]', "[1]"),
        (OutputConstraint.grammar('root ::= "(" root ")" | "x"'), "((x))", "((x)"),
    ]
    compiler = ConstraintCompiler(DOMAIN)
    compiled = [(compiler.compile(requests[index][0]), *requests[index][1:]) for index in order]
    for grammar, member, other in compiled:
        for text, expected in ((member, True), (other, False)):
            session = grammar.session()
            assert (all(session.accept(byte) for byte in text.encode()) and session.complete) is expected


def nested_one_of(depth: int) -> OutputConstraint:
    """An array or an object at every level, written with one definition per level."""
    levels: dict[str, object] = {"L0": {"oneOf": [{"type": "null"}, INTEGER]}}
    for level in range(depth):
        inner = {"$ref": f"#/$defs/L{level}"}
        member = {"type": "object", "properties": {"a": inner}, "required": ["a"], "additionalProperties": False}
        levels[f"L{level + 1}"] = {"oneOf": [{"type": "array", "items": inner}, member]}
    return schema({"$ref": f"#/$defs/L{depth}", "$defs": levels})


@pytest.mark.parametrize("depth", [2, 6, 64, 200])
def test_a20_nested_one_of_is_exact_at_any_depth_within_the_limits(depth):
    constraint = nested_one_of(depth)
    mixed = '[{"a":' * (depth // 2) + "1" + "}]" * (depth // 2)
    assert is_output(constraint, mixed)
    assert is_output(constraint, "[" * depth + "null" + "]" * depth)
    assert not is_output(constraint, mixed.replace("1", "[1]"))


def test_a20_beyond_the_limits_the_refusal_names_the_measure():
    with pytest.raises(ConstraintTooLarge, match=r"a chain of 100\d parts"):
        COMPILER.compile(nested_one_of(1000))
    written_out: dict = {"type": "null"}
    for _ in range(16):
        inner = {"type": "object", "properties": {"a": written_out}, "required": ["a"]}
        written_out = {"oneOf": [{"type": "array", "items": written_out}, inner]}
    with pytest.raises(ConstraintTooLarge, match="max_schema_bytes"):
        COMPILER.compile(schema(written_out))
    assert is_output(nested_one_of(2), '[{"a":1}]')


def test_a21_a_large_bound_on_a_length_does_not_make_the_grammar_larger():
    def bounded(maximum: int) -> OutputConstraint:
        content = {"type": "string", "maxLength": maximum}
        return schema({"type": "object", "properties": {"content": content}, "required": ["content"]})

    assert COMPILER.compile(bounded(100_000)).memory_bytes < 2 * COMPILER.compile(bounded(100)).memory_bytes
    start = b'{"content":"' + b"x" * 99_999
    session = COMPILER.compile(bounded(100_000)).session(prefix=start)
    assert session.accept(ord("x"))
    assert allowed(session) == {ord('"')}


def test_a22_a_tag_of_many_tools_is_compiled_once():
    def tool(index: int) -> dict:
        types = [STRING, INTEGER, {"type": "boolean"}, {"type": "array", "items": STRING}]
        properties = {f"p{index}_{position}": types[position % 4] for position in range(20)}
        return {
            "begin": f"<tool{index}>",
            "content": {"type": "json_schema", "json_schema": {"type": "object", "properties": properties}},
            "end": "</tool>",
        }

    tools = [{"type": "tag", **tool(index)} for index in range(128)]
    text = json.dumps({"type": "structural_tag", "format": {"type": "or", "elements": tools}})
    first, again = COMPILER.prepare_structural_tag(text), COMPILER.prepare_structural_tag(text)
    assert (first.outcome, again.outcome) == (Outcome.BUILT, Outcome.HIT)
    assert again.compiled is first.compiled


def test_a26_unique_items_without_a_list_are_enforced_or_refused_by_name():
    constraint = schema({"type": "array", "items": INTEGER, "uniqueItems": True})
    try:
        COMPILER.compile(constraint)
    except UnsupportedSchema as refused:
        message = refused.message
    else:
        message = "" if is_output(constraint, "[1,2]") and not is_output(constraint, "[1,1]") else "loose"
    assert not message or message.startswith("uniqueItems ")
