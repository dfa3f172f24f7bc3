"""Grammars that several tests need."""

from __future__ import annotations

from infernix_plugin.grammar.ir import (
    Grammar,
    Literal,
    Ref,
    Repeat,
    alt,
    chars,
    charset,
    complement,
    optional,
    repeat,
    seq,
)

DIGIT = charset([(ord("0"), ord("9"))])


def json_grammar() -> Grammar:
    """JSON written character by character, as users write it."""
    ws, string, value = Ref("ws"), Ref("string"), Ref("value")
    member = seq(string, Literal(":"), ws, value)
    hexadecimal = alt(DIGIT, charset([(ord("a"), ord("f"))]), charset([(ord("A"), ord("F"))]))
    return Grammar(
        {
            "root": Ref("object"),
            "value": alt(Ref("object"), Ref("array"), string, Ref("number"), seq(Ref("name"), ws)),
            "name": alt(*map(Literal, ("true", "false", "null"))),
            "object": seq(
                Literal("{"), ws, optional(seq(member, repeat(seq(Literal(","), ws, member)))), Literal("}"), ws
            ),
            "array": seq(
                Literal("["), ws, optional(seq(value, repeat(seq(Literal(","), ws, value)))), Literal("]"), ws
            ),
            "string": seq(Literal('"'), repeat(Ref("char")), Literal('"'), ws),
            "char": alt(complement(charset([(0, 31), (34, 34), (92, 92)])), seq(Literal("\\"), Ref("escape"))),
            "escape": alt(chars('"\\/bfnrt'), seq(Literal("u"), *[Ref("hex")] * 4)),
            "hex": hexadecimal,
            "number": seq(
                optional(Literal("-")), Ref("integer"), optional(seq(Literal("."), repeat(DIGIT, 1))), Ref("ws")
            ),
            "integer": alt(Literal("0"), seq(charset([(ord("1"), ord("9"))]), Repeat(DIGIT, 0, 15))),
            "ws": optional(seq(chars(" \t\n"), ws)),
        }
    )
