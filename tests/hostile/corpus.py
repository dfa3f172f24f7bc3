"""Constraints made to cost as much as possible: each is a few lines or a few megabytes, and none may cost others."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce
from typing import Any

from infernix_plugin import OutputConstraint

Make = Callable[[], OutputConstraint]


def schema(document: Any) -> Make:
    return lambda: OutputConstraint.json_schema(document if isinstance(document, str) else json.dumps(document))


def regex(text: str) -> Make:
    return lambda: OutputConstraint.regex(text)


def grammar(text: str) -> Make:
    return lambda: OutputConstraint.grammar(text)


def nested(rest: str) -> Make:
    """A grammar that is not regular, so that it runs on xgrammar."""
    return grammar(f'root ::= "(" root ")" | {rest}')


def rules(count: int, body: Callable[[int], str], last: str = "") -> str:
    return "\n".join(f"r{i} ::= {body(i)}" for i in range(count)) + f"\nr{count} ::= {last}" * bool(last)


def doubled(kind: str, depth: int) -> dict[str, Any]:
    wrap = {"type": "object", "required": ["a"]}
    return reduce(
        lambda inner, _: {kind: [{**wrap, "properties": {"a": inner}}, {"type": "array", "items": inner}]},
        range(depth),
        {"type": "string"},
    )


def branches(count: int) -> list[dict[str, Any]]:
    return [
        {"anyOf": [{"properties": {f"p{i}": {"type": kind}}} for kind in ("integer", "null")]} for i in range(count)
    ]


REGEXES = {
    "optional classes": regex("[ab]?" * 5000),
    "optional and starred": regex("[ab]?b*" * 3000),
    "optional groups": regex("(a?|b?|c?)" * 4000),
    "exponential automaton": regex("(a|b)*a(a|b){2000}c"),
    "nested counts": regex("((((a{1,30}b){1,30}c){1,30}d){1,30}e)"),
    "counts of counts": regex("((a{1000}){1000}){1000}"),
    "a long count of options": regex("(a?b?){0,1000000}"),
    "deep groups": regex("(" * 10_000 + "a" + ")" * 10_000),
    "many counted alternatives": regex("|".join(f"[ab]{{{i}}}c" for i in range(2000))),
    "wide classes": regex("".join(f"[\\u{0x100 + i:04x}-\\u{0x9000 + i:04x}]?" for i in range(2000))),
    "lookarounds": regex("(?=a)" * 10_000),
    "doubled plusses": regex("(a+)+" * 500 + "$"),
    "stars of options": regex("(" * 200 + "a?" + ")*" * 200),
    "a NUL": regex("a\0b"),
    "a lone surrogate": regex("a\ud800"),
    "an escaped surrogate": regex("\\ud800"),
    "a long lookahead": regex("^(?!" + "(a|b)*a(a|b){60}" + ").*$"),
}
GRAMMARS = {
    "ambiguous everywhere": grammar('root ::= . root . | . root | root . | ""'),
    "ambiguous loops": grammar('root ::= a "x" | root root\na ::= a a | b a b | [a-z]*\nb ::= b? [a-z] b? | ""'),
    "ambiguous sums": grammar('root ::= e\ne ::= e "+" e | e "*" e | "(" e ")" | e e | [a-z] |'),
    "counts of nothing": nested('(("a"? root?){0,100}){0,100}'),
    "doubled nullable": nested("r0\n" + rules(24, lambda i: f"r{i + 1} r{i + 1}", "[a-z]?")),
    "doubled options": nested("r0\n" + rules(60, lambda i: f'("a" r{i + 1} | "b" r{i + 1})+', '"a"')),
    "nullable chain": nested("r0\n" + rules(3000, lambda i: f'"a"? r{i + 1} | "b" r{i + 1}', '"x"')),
    "left recursion": nested("r0\n" + rules(60, lambda i: " | ".join(f'r{j} "{j}"' for j in range(60)) + ' | "z"')),
    "unit cycles": nested("r0\n" + rules(3000, lambda i: f'r{(i + 1) % 3000} | "{i}"')),
    "rows of classes": nested("[a-z]+ [0-9]* " * 3000),
    "rows of options": nested(" ".join(f"[a{chr(98 + i % 24)}]?" for i in range(3000))),
    "rows of anything": nested(" ".join(f'.* "{chr(97 + i % 26)}"' for i in range(300))),
    "large classes": nested(
        " ".join(f"[{''.join(chr(0x3000 + 2 * i + 7 * k) for i in range(200))}]+" for k in range(300))
    ),
    "a large literal": nested(f'"{"ab" * 200_000}"'),
    "many literals": nested(" | ".join(f'"{i}"' for i in range(50_000))),
    "counted references": nested('("[" root "]"){1,100000}'),
    "deep groups": nested("(" * 100_000 + '"a"' + ")" * 100_000),
    "stacked stars": nested("(" * 200 + "[a-z]" + "*)*" * 200),
    "hidden left recursion": nested("r0\n" + rules(500, lambda i: f'r{i + 1}? r{(i + 250) % 500} "x" | "{i}"', '""')),
    "no end": grammar('root ::= "a" root | "b" root'),
    "tokens that cannot be": grammar("root ::= Token(300) root | ExcludeToken(300) Token(301) root"),
    "exponential nesting of nothing": nested("r0\n" + rules(40, lambda i: f"(r{i + 1} | r{i + 1} r{i + 1})?", '"x"?')),
    "only dead ends": grammar('root ::= "a" root | b\nb ::= "c" b'),
    "token terminals": nested(" | ".join(f"ExcludeToken({i}) Token({i + 1})" for i in range(300, 800))),
    "a NUL": grammar('root ::= "\0" | \0'),
    "a lone surrogate": grammar('root ::= "\ud800"'),
    "Lark, deep": grammar("start: " + "(" * 10_000 + '"a"' + ")" * 10_000),
    "Lark, wide": grammar('start: "(" start ")" | ' + " | ".join(f'"{i}"' for i in range(30_000))),
}
SCHEMAS = {
    "deep items": schema('{"items":' * 10_000 + "{}" + "}" * 10_000),
    "deep constants": schema('{"const":' + "[" * 100_000 + "]" * 100_000 + "}"),
    "a cycle of references": schema(
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    ),
    "a chain of references": schema(
        {"$ref": "#/$defs/d0", "$defs": {**{f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(5000)}, "d5000": {}}}
    ),
    "doubled references": schema(
        {
            "$ref": "#/$defs/d0",
            "$defs": {**{f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(100)}, "d100": {}},
        }
    ),
    "recursive intersections": schema(
        {
            "allOf": [{"$ref": f"#/$defs/p{p}-0"} for p in (2, 3, 5, 7, 11)],
            "$defs": {
                f"p{p}-{i}": {"type": "object", "properties": {"x": {"$ref": f"#/$defs/p{p}-{(i + 1) % p}"}}}
                for p in (2, 3, 5, 7, 11)
                for i in range(p)
            },
        }
    ),
    "nested oneOf": schema(doubled("oneOf", 11)),
    "allOf of anyOf": schema({"allOf": branches(11)}),
    "more allOf of anyOf": schema({"allOf": branches(20)}),
    "exclusive objects": schema(
        {"oneOf": [{"properties": {f"p{i}": {"const": i}}, "required": [f"p{i}"]} for i in range(300)]}
    ),
    "an enum of objects": schema({"enum": [{f"k{j}": i * j for j in range(10)} for i in range(3000)]}),
    "an enum of strings": schema({"enum": [f"value {i * 7919 % 1_000_003}" for i in range(50_000)]}),
    "many constants": schema({"anyOf": [{"const": f"v{i}"} for i in range(20_000)]}),
    "a wide object": schema({"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(20_000)}}),
    "many required": schema({"required": [f"p{i}" for i in range(20_000)]}),
    "counted members": schema({"properties": {f"p{i}": {} for i in range(500)}, "minProperties": 250}),
    "large counts of members": schema({"type": "object", "minProperties": 1_000_000}),
    "large counts of items": schema(
        {"type": "array", "minItems": 1_000_000, "items": {"type": "array", "minItems": 9}}
    ),
    "contains": schema({"type": "array", "contains": {"type": "string"}, "minContains": 500, "maxContains": 1000}),
    "contains at places": schema(
        {"prefixItems": [{"enum": [0, 1]}] * 60, "contains": {"const": 1}, "minContains": 30, "items": False}
    ),
    "overlapping names": schema({"patternProperties": {f"x{i}": {"minimum": i} for i in range(16)}}),
    "many name patterns": schema(
        {"patternProperties": {f"^{chr(97 + i % 26)}{i}.*x{i}": {"minimum": i} for i in range(200)}}
    ),
    "intersected patterns": schema({"allOf": [{"pattern": f"^(a|b)*a(a|b){{{n}}}$"} for n in (20, 21, 22)]}),
    "patterns and lengths": schema({"type": "string", "pattern": "a.*b.*c", "minLength": 100_000}),
    "many patterns": schema(
        {"properties": {f"p{i}": {"pattern": f"(x|y)*z{i}.{{0,50}}$", "maxLength": 100 + i} for i in range(800)}}
    ),
    "conditions": schema(
        {"allOf": [{"if": {"required": [f"p{i}"]}, "then": {"required": [f"q{i}"]}, "else": {}} for i in range(40)]}
    ),
    "negated objects": schema({"not": {"anyOf": [{"required": [f"p{i}"]} for i in range(200)]}}),
    "a large divisor": schema({"type": "integer", "multipleOf": 1_000_003}),
    "a large number": schema('{"minimum": 1e9999999999}'),
    "a long number": schema('{"const": ' + "9" * 500_000 + "}"),
    "equal keys": schema("{" + ",".join(['"a":1'] * 100_000) + "}"),
    "a cycle through all kinds": schema(
        {
            "allOf": [{"$ref": "#/$defs/a"}],
            "$defs": {
                "a": {"anyOf": [{"$ref": "#/$defs/b"}, {"type": "null"}], "not": {"$ref": "#/$defs/c"}},
                "b": {"properties": {"x": {"$ref": "#"}}, "items": {"$ref": "#/$defs/a"}},
                "c": {"if": {"$ref": "#/$defs/b"}, "then": {"$ref": "#/$defs/a"}, "else": False},
            },
        }
    ),
    "a reference to itself": schema({"$ref": "#"}),
    "references that leave the document": schema({"$ref": "http://127.0.0.1:1/schema.json"}),
    "deep alternatives": schema('{"anyOf":[' * 10_000 + "{}" + "]}" * 10_000),
    "a pattern of nested counts": schema(
        {"pattern": "^((((a{1,30}b){1,30}c){1,30}d){1,30}e){1,30}$", "maxLength": 999}
    ),
    "a surrogate as a name": schema('{"properties": {"\\ud800": {}}, "required": ["\\ud800"]}'),
    "an escaped surrogate": schema('{"const": "\\ud800"}'),
    "an escaped NUL": schema('{"const": "\\u0000"}'),
    "text that is not JSON": schema("\x00\ud800{"),
}
CHOICES: dict[str, Make] = {
    "too many": lambda: OutputConstraint.choice([str(i) for i in range(100_001)]),
    "a million": lambda: OutputConstraint.choice([str(i) for i in range(1_000_000)]),
    "not strings": lambda: OutputConstraint.choice([None, 1]),  # type: ignore[list-item]
    "nothing and a NUL": lambda: OutputConstraint.choice(["", "\0", "\0\0"]),
    "fifty thousand": lambda: OutputConstraint.choice([str(i * 7919 % 1_000_003) for i in range(50_000)]),
    "prefixes": lambda: OutputConstraint.choice(["a" * i for i in range(2000)]),
    "one of a megabyte": lambda: OutputConstraint.choice(["ab" * 500_000]),
    "a lone surrogate": lambda: OutputConstraint.choice(["a\ud800"]),
}
FAMILIES = {"regex": REGEXES, "grammar": GRAMMARS, "schema": SCHEMAS, "choice": CHOICES}
