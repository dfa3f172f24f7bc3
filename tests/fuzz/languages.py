"""Good texts of every language that a reader reads, and the words that they are made of."""

import json
from itertools import chain

from tests.json_schema_suite.cases import UPSTREAM

GBNF = [
    'root ::= "a" [b-d]* | r{2,3} "\\n"\nr ::= "x"? ("y" | "z")+ .',
    'root ::= "[" (item ("," item)*)? "]"\nitem ::= root | [0-9]+ # numbers\n',
    'root ::= e\ne ::= e "+" e | "(" e ")" | [a-z]',
    'root ::= "\\u00e9\\x41\\"" [^\\]"\\\\\\n] [\\u0000-\\uffff-] ""',
    "root ::= Token(270) ExcludeToken(1, 2)* Token(260) | root-2\nroot-2 ::= <[3]> !<[4]>",
    'root ::= (\n  "a"\n  | b\n)\nb ::= "b" (= "c")',
    'root ::= "a" <|end|> | (=("c"))',
]
GBNF_PARTS = ["::=", "|", "(", ")", "[", "]", "{", "}", "{0,3}", "{1000000}", "*", "+", "?", ".", "-", "^", ",", "\n"]
GBNF_PARTS += ['"a"', "root", "r ::= ", "\\x", "\\u12", "\\U00110000", "Token(", "TagDispatch(", "<[", "]>", "//", "0"]

LARK = [
    'start: "a" b+ | /[a-z]{1,3}/\nb: "x".."z" ~ 2..3 | ["q"]\n%ignore / +/',
    'start: (A | B)* -> name\nA: "a" /b/\nB.2: A "c"i\n%import common.INT\n// note',
    'start: json\njson: object | STRING\nobject: "{" [STRING ":" json ("," STRING ":" json)*] "}"\nSTRING: /"[^"]*"/',
    'start: "x" start | A\nA: /[^a]/ ~ 3 | "z"~0..2\n%ignore " "',
    'start: <|end|> <[3-5]> x[capture="y", max_tokens=3]\nx: %json {"type": "object"} | %regex {"a": "a"}',
]
LARK_PARTS = [":", "|", "(", ")", "[", "]", "~", "..", "->", "%ignore", "%import", "%declare", "%json {", "/", "/i"]
LARK_PARTS += ['"a"', "start", "\nA: ", "\nb: ", ".5", "*", "+", "?", "{", "}", "&", "!", "<[", "]>", ",", "=", "\\"]

REGEX = [
    r"^(?:a|b){2,}c*?$",
    r"(19|20)\d{2}-(0[1-9]|1[0-2])",
    r"[^\]\\\n-]+[\w.%+-]+@[\u0041-\u005a]{2,4}",
    r"(?:a*){3}|\(\t\x7f\/$|^^a",
    r"(?=.*a)(?!b)[a-z]{3,}(?<=c)(?<!d)$",
    r"(?<name>x)|\x41\u00e9?\cA[\d\s\S]|\bword\b",
    "",
]
REGEX_PARTS = ["(", ")", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?<n>", "(?i)", "[", "]", "^", "$", "|", "*", "+", "?"]
REGEX_PARTS += [
    "{",
    "}",
    "{2}",
    "{3,1}",
    "{99999999999}",
    ",",
    "\\",
    "\\b",
    "\\1",
    "\\p{L}",
    "\\u{",
    "\\x",
    "-",
    ".",
    "&&",
]

SCHEMA_PARTS = ["{", "}", "[", "]", ":", ",", '"', "true", "false", "null", "1e400", "-0", "1.5", "9" * 400, "NaN", "#"]
SCHEMA_PARTS += ['"type":', '"$ref":"#"', '"$id":"urn:x"', '"pattern":"("', '"not":{}', '"enum":[]', '"minimum":-1,']
SCHEMA_PARTS += [
    '"items":',
    '"uniqueItems":true',
    '"\\ud800"',
    "\\u0000",
    '"$ref":"#/$defs/a"',
    '"$schema":1',
    '"": {}',
]


TAGS = [
    '{"type":"structural_tag","format":{"type":"const_string","value":"ok"}}',
    '{"type":"structural_tag","format":{"type":"sequence","elements":[{"type":"any_text"},{"type":"or","elements":'
    '[{"type":"regex","pattern":"a+"},{"type":"grammar","grammar":"root ::= \\"x\\""}]}]}}',
    '{"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<f"],"tags":[{"begin":"<f>","content":'
    '{"type":"json_schema","json_schema":{"type":"boolean"}},"end":"</f>"}],"at_least_one":true,"stop_after_first":true}}',
    '{"type":"structural_tag","format":{"type":"tags_with_separator","separator":",","tags":[{"type":"tag","begin":"<a>",'
    '"content":{"type":"any_text"},"end":["</a>","!"]}]}}',
    '{"type":"structural_tag","structures":[{"begin":"<f>","schema":{"type":"boolean"},"end":"</f>"}],"triggers":["<f"]}',
    '{"type":"structural_tag","format":{"type":"sequence","elements":[{"type":"any_tokens","exclude_tokens":[281]},'
    '{"type":"token","token":281},{"type":"optional","content":{"type":"qwen_xml_parameter","json_schema":{}}}]}}',
]
TAG_PARTS = ["{", "}", "[", "]", ":", ",", '"', '"type":', '"format":', '"value":', '"elements":', '"tags":', "null"]
TAG_PARTS += ['"triggers":', '"content":', '"any_text"', '{"type":"any_text"}', '"token"', "-1", "99999999999", "[[[["]
TAG_PARTS += ['{"type":"plus","content":', '{"type":"repeat","min":0,"max":99999,"content":', "infernix_framed_output"]


def schemas() -> list[str]:
    """Every schema of the JSON Schema Test Suite, as text."""
    groups = chain.from_iterable(json.loads(path.read_text("utf-8")) for path in sorted(UPSTREAM.rglob("*.json")))
    return list(dict.fromkeys(json.dumps(group["schema"]) for group in groups))


ARGUMENTS = [
    '{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},"additionalProperties":false}',
    '{"type":"object","properties":{"a":{"enum":["x","y",1]},"b":{"$ref":"#/$defs/d"}},"required":["a"],'
    '"additionalProperties":false,"$defs":{"d":{"type":["null","boolean"]}}}',
    '{"type":"object","properties":{"t":{"type":"string","pattern":"^a+$","maxLength":3},"l":{"type":"array",'
    '"items":{"type":"number"},"maxItems":2}},"additionalProperties":false}',
    "{}",
    "true",
]
PREFIXES = ['{"a": [1, ', '{"', "[true, nul", '"\\u00e', "12", '{"é": "\\n', "{}", '["a"] ', "-0.5e", '"a"']
CALLS = [
    "\n\n<tool_call>\n<function=lookup>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>",
    "text</think>\n\nhello <tool_call>\n<function=lookup>\n<parameter=days>\n12\n</parameter>\n</function>\n"
    "</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call><|im_end|>",
    "<tool_call>\n<function=lookup>\n<parameter=city>\n<parameter=x>\n</parameter></parameter>\n</function>",
]
CALL_PARTS = ["<tool_call>", "</tool_call>", "<function=", "<function=lookup>\n", "</function>\n", "<parameter=", ">\n"]
CALL_PARTS += ["<parameter=city>\n", "\n</parameter>\n", "</parameter>", "<think>", "</think>", "<|im_end|>", "\n", "é"]
