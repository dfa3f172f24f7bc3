"""``infernix check``: verdicts, places, exit codes and the JSON document."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from infernix_plugin.entrypoints.cli import app
from infernix_plugin.model_executor.tiny import tokenizer as tiny

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def tokenizer():
    return tiny.train()


@pytest.fixture(autouse=True)
def trained_once(tokenizer, monkeypatch):
    """The same tokenizer every time; training it takes most of the time of a check."""
    monkeypatch.setattr(tiny, "train", lambda: tokenizer)


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def invoke(*arguments, stdin=None):
    return CliRunner().invoke(app, ["check", *arguments], input=stdin)


def report(*arguments, stdin=None):
    done = invoke(*arguments, "--json", stdin=stdin)
    document = json.loads(done.stdout)
    refused = not document["supported"] or (document["instance"] is not None and not document["instance"]["accepted"])
    assert done.exit_code == int(refused), done.output
    return document


def tag(form):
    return {"type": "structural_tag", "format": form}


@pytest.fixture
def schema(write):
    return write("schema.json", json.dumps(SCHEMA))


@pytest.mark.parametrize(
    ("name", "content", "kind", "expected", "engine"),
    [
        ("a.json", '{"type": "integer"}', None, "json_schema", "llguidance"),
        ("a.gbnf", 'root ::= "a" root "b" | "c"', None, "grammar", "xgrammar"),
        ("a.lark", 'start: "a" | "b"', None, "grammar", "llguidance"),
        ("a.regex", "[0-9]{4}\n", None, "regex", "llguidance"),
        ("a.txt", "[0-9]{4}", "regex", "regex", "llguidance"),
        ("a.txt", "yes\nno\n", "choice", "choice", "llguidance"),
        ("a.json", '["yes", "no"]', "choice", "choice", "llguidance"),
        ("a", 'root ::= "a"', "grammar", "grammar", "llguidance"),
        ("a.json", json.dumps(tag({"type": "regex", "pattern": "[0-9]+"})), "structural_tag", "structural_tag", None),
    ],
)
def test_every_kind_is_supported(write, name, content, kind, expected, engine):
    found = report(write(name, content), *(["--kind", kind] if kind else []))
    assert (found["kind"], found["supported"]) == (expected, True)
    assert found["engine"] == engine or engine is None  # which of them it is, is no promise
    assert found["error"] is None
    assert found["compile_seconds"] > 0
    assert found["memory_bytes"] > 0


@pytest.mark.parametrize(
    ("name", "content", "kind", "error", "location", "keyword"),
    [
        ("a.json", '{"properties": {"a": {"maxLenght": 3}}}', None, "UnsupportedSchema", "#/properties/a/maxLenght",
         "maxLenght"),
        ("a.json", '{"properties": {"type": {"type": "frog"}}}', None, "InvalidSchema", "#/properties/type/type",
         "type"),
        ("a.json", '{"uniqueItems": true, "contains": {}}', None, "UnsupportedSchema", "#/contains", "contains"),
        ("a.json", '{"type": ', None, "InvalidSchema", "1:10", None),
        ("a.json", '{"type": "integer", "minimum": 5, "maximum": 4}', None, "UnsatisfiableConstraint", "#", None),
        ("a.gbnf", "root ::= b", None, "InvalidGrammar", "1:10", None),
        ("a.regex", "a(?=b)", None, "InvalidRegex", "offset 1", None),
        ("a.txt", "", "choice", "InvalidChoice", None, None),
        ("a.json", '["a", 1]', "choice", "InvalidChoice", "[1]", None),
        ("a.json", "[1]", "structural_tag", "InvalidGrammar", "#", None),
        ("a.json", '{"type": ', "structural_tag", "InvalidGrammar", "1:10", None),
        ("a.json", json.dumps(tag({"type": "sequence", "elements": [{"type": "regex", "pattern": "("}]})),
         "structural_tag", "InvalidGrammar", "#/format/elements/0/pattern", "pattern"),
    ],
)  # fmt: skip
def test_a_refusal_has_a_place_and_a_reason(write, name, content, kind, error, location, keyword):
    path = write(name, content)
    kinds = ["--kind", kind] if kind else []
    found = report(path, *kinds)
    assert not found["supported"]
    assert {name: found["error"][name] for name in ("type", "location", "keyword")} == {
        "type": error,
        "location": location,
        "keyword": keyword,
    }
    assert found["engine"] is found["compile_seconds"] is found["first_tokens"] is found["instance"] is None
    shown = invoke(path, *kinds).output
    for part in (error, location, found["error"]["message"], found["error"]["hint"]):
        assert part is None or part in shown


def test_a_hint_says_how_to_write_it(write):
    assert report(write("a.json", '{"maxLenght": 3}'))["error"]["hint"] == "did you mean maxLength?"


def test_the_first_tokens_are_counted(write, tokenizer):
    found = report(write("a.regex", "[ab]+"))
    pieces = [text for text, token in tokenizer.get_vocab().items() if token < tiny.TEXT_TOKENS]
    assert found["first_tokens"] == sum(set(text) <= {"a", "b"} for text in pieces)
    assert not found["may_be_empty"]
    assert report(write("a.regex", "a*"))["may_be_empty"]


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_an_instance_is_accepted(write, schema, end):
    instance = report(schema, "--instance", write("x.json", '{"name": "Bob", "age": 3}' + end))["instance"]
    assert instance == {
        "accepted": True,
        "bytes": 25,
        "line_end_dropped": bool(end),
        "schema_valid": True,
        "allowed_spelling": None,
        "refusal": None,
        "error": None,
    }


def test_a_line_end_that_the_language_has_is_kept(write):
    instance = report(write("a.gbnf", 'root ::= "a\\n"'), "--instance", write("x", "a\n"))["instance"]
    assert (instance["accepted"], instance["bytes"], instance["line_end_dropped"]) == (True, 2, False)


def test_the_byte_and_the_token_of_a_refusal(write, schema, tokenizer):
    text = '{"name":"Bob","age":-3}'
    instance = report(schema, "--instance", write("x.json", text))["instance"]
    refusal = instance["refusal"]
    byte = text.index("-")
    assert (refusal["byte"], refusal["line"], refusal["column"], refusal["text"]) == (byte, 1, byte + 1, "-")
    encoded = tokenizer.encode(text)
    index = next(i for i, (start, end) in enumerate(encoded.offsets) if start <= byte < end)
    assert refusal["token"] == {"index": index, "id": encoded.ids[index], "text": "-"}
    assert refusal["allowed"]["characters"] == ["\t", "\n", "\r", " ", "0-9"]
    assert not refusal["allowed"]["end"]
    assert instance["schema_valid"] is False
    assert instance["allowed_spelling"] is None


def test_what_is_allowed_is_counted_and_listed(write, tokenizer):
    refusal = report(write("c.txt", "yes\nyet"), "--kind", "choice", "--instance", write("x", "yep"))["instance"][
        "refusal"
    ]
    vocabulary = tokenizer.get_vocab()
    pieces = sorted((piece for piece in ("s", "t") if piece in vocabulary), key=vocabulary.get)
    assert refusal["byte"] == 2
    assert refusal["allowed"] == {"end": False, "tokens": 2, "characters": ["s", "t"], "examples": pieces}


def test_the_list_is_bounded(write):
    allowed = report(write("a.regex", "a[^b]"), "--instance", write("x", "ab"))["instance"]["refusal"]["allowed"]
    assert allowed["tokens"] > len(allowed["examples"]) == 12
    assert len(allowed["characters"]) <= 16


def test_an_instance_that_stops_too_early(write, schema):
    refusal = report(schema, "--instance", write("x.json", '{"name":"Bob"'))["instance"]["refusal"]
    assert (refusal["byte"], refusal["text"], refusal["token"]) == (13, "", None)
    assert "," in refusal["allowed"]["characters"]


def test_an_instance_that_goes_on_too_long(write):
    refusal = report(write("a.regex", "ab"), "--instance", write("x", "abc"))["instance"]["refusal"]
    assert refusal["byte"] == 2
    assert refusal["allowed"] == {"end": True, "tokens": 0, "characters": [], "examples": []}


def test_a_refusal_inside_a_character(write):
    """U+00EA and U+00E9 begin with the same byte."""
    refusal = report(write("a.regex", "x\né"), "--instance", write("x", "x\nê"))["instance"]["refusal"]
    assert (refusal["byte"], refusal["line"], refusal["column"], refusal["text"]) == (3, 2, 1, "ê")
    assert "é" in refusal["allowed"]["characters"]


def test_an_instance_that_is_not_text(write):
    refusal = report(write("a.regex", ".*"), "--instance", write("x", b"ab\xff"))["instance"]["refusal"]
    assert (refusal["byte"], refusal["token"]["text"]) == (2, "\\xff")


def test_a_marker_in_an_instance_is_ordinary_text(write):
    for text in ("a<|im_end|>b", "<think>", "e\u0301"):
        assert report(write("a.regex", ".*"), "--instance", write("x", text))["instance"]["accepted"]
    refusal = report(write("a.regex", "[^|]*"), "--instance", write("x", "a<|im_end|>b"))["instance"]["refusal"]
    assert refusal["byte"] == 2
    assert "|" in refusal["token"]["text"]
    assert "im_end" not in refusal["token"]["text"]


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ('{"age": 3, "name": "Bob"}', '{"name":"Bob","age":3}'),
        ('{"name":"B\\u006fb","age":3}', '{"name":"Bob","age":3}'),
        ('{"name":"Bob","age":3.0}', '{"name":"Bob","age":3}'),
        ('{"name":"Bob","age":3e0}', '{"name":"Bob","age":3}'),
    ],
)
def test_another_order_or_spelling_is_shown(write, schema, text, spelling):
    path = write("x.json", text)
    instance = report(schema, "--instance", path)["instance"]
    assert (instance["accepted"], instance["schema_valid"]) == (False, True)
    assert instance["allowed_spelling"] == spelling
    assert json.loads(spelling) == json.loads(text)
    shown = invoke(schema, "--instance", path).output
    assert "only in another key order or spelling" in shown
    assert spelling in shown


def test_nested_and_repeated_keys(write):
    nested = {"type": "object", "properties": {"a": SCHEMA, "b": {"type": "array", "items": SCHEMA}}}
    path = write("n.json", json.dumps(nested))
    text = '{"b":[{"age":1,"name":"x"},{"name":"y","age":2}],"a":{"age":0,"name":""}}'
    spelling = report(path, "--instance", write("x.json", text))["instance"]["allowed_spelling"]
    assert json.loads(spelling) == json.loads(text)
    assert report(path, "--instance", write("y.json", spelling))["instance"]["accepted"]
    twice = report(path, "--instance", write("z.json", '{"a":{"age":1,"age":1,"name":"x"}}'))["instance"]
    assert twice["allowed_spelling"] is None


def test_many_optional_keys(write):
    """Found in the declared order; of the 2^20 subsets that an undirected search would try, most are legal."""
    names = [f"k{index}" for index in range(20)]
    schema = {
        "type": "object",
        "properties": {key: {"type": "boolean"} for key in names},
        "additionalProperties": False,
    }
    value = dict.fromkeys(reversed(names), True)
    found = report(write("m.json", json.dumps(schema)), "--instance", write("x.json", json.dumps(value)))
    assert list(json.loads(found["instance"]["allowed_spelling"])) == names


def test_standard_input(write, schema):
    assert report("-", "--kind", "regex", stdin="a+\n")["supported"]
    assert report(schema, "--instance", "-", stdin='{"name":"Bob","age":3}\n')["instance"]["accepted"]
    assert report("-", "--kind", "json_schema", stdin='{"type": "frog"}')["error"]["location"] == "#/type"


def test_the_grammar_is_shown_on_request(write, schema):
    assert report(schema)["grammar"] is None
    assert '"name"' in report(schema, "--show-grammar")["grammar"]
    recursive = write("a.gbnf", 'root ::= "a" root "b" | "c"')
    assert "root ::=" in report(recursive, "--show-grammar")["grammar"]
    assert "root ::=" in invoke(recursive, "--show-grammar").output
    assert "root ::=" not in invoke(recursive).output


@pytest.mark.parametrize(
    "arguments",
    [
        ["missing.json"],
        ["SCHEMA", "--kind", "frog"],
        ["SCHEMA", "--instance", "missing.json"],
        ["SCHEMA", "--tokenizer", "missing"],
        ["SCHEMA", "--tokenizer", "EMPTY"],
        ["TEXT"],
        ["-"],
        ["-", "--kind", "regex", "--instance", "-"],
        ["BINARY"],
        ["SCHEMA", "--kind", "choice"],
        [],
    ],
)
def test_wrong_usage_is_exit_code_2(write, schema, tmp_path, arguments):
    (tmp_path / "empty").mkdir()
    names = {
        "SCHEMA": schema,
        "EMPTY": str(tmp_path / "empty"),
        "TEXT": write("a.txt", "a"),
        "BINARY": write("b.json", b"\xff"),
    }
    done = invoke(*(names.get(argument, argument) for argument in arguments), stdin="")
    assert done.exit_code == 2, done.output
    assert not done.stdout


def test_a_wrong_setting_is_wrong_usage(schema, monkeypatch):
    monkeypatch.setenv("INFERNIX_MAX_NODES", "many")
    assert invoke(schema).exit_code == 2


def test_the_settings_of_the_environment_hold(schema, monkeypatch):
    monkeypatch.setenv("INFERNIX_MAX_SCHEMA_BYTES", "10")
    assert report(schema)["error"]["type"] == "ConstraintTooLarge"


def test_the_time_limit_is_that_of_the_settings(schema, monkeypatch):
    monkeypatch.setenv("INFERNIX_MAX_COMPILE_SECONDS", "1e-9")
    assert report(schema)["error"]["type"] == "CompileTimeout"


def test_a_checkpoint_directory_is_read(tmp_path, schema, write, tokenizer):
    directory = tmp_path / "checkpoint"
    directory.mkdir()
    tiny.save(tokenizer, directory)
    order = write("x.json", '{"age":3,"name":"Bob"}')
    ours = report(schema, "--instance", order)
    theirs = report(schema, "--instance", order, "--tokenizer", str(directory))
    assert theirs["tokenizer"] == str(directory)
    assert theirs["instance"] == ours["instance"]
    assert theirs["vocab_size"] == ours["vocab_size"] == tokenizer.get_vocab_size()


def test_the_page_names_every_key(write, schema):
    page = (Path(__file__).parents[2] / "docs" / "check.md").read_text(encoding="utf-8")
    found = report(schema, "--instance", write("x.json", '{"name":"Bob","age":-3}'))
    error = report(write("a.json", '{"type": "frog"}'))["error"]
    instance, refusal = found["instance"], found["instance"]["refusal"]
    for part in (found, error, instance, refusal, refusal["token"], refusal["allowed"]):
        for key in part:
            assert f"`{key}`" in page, key


def test_the_example_of_the_page_is_what_is_printed(write):
    """But for the seconds, and for the size, which may be one of another release of an engine by as much again."""
    page = (Path(__file__).parents[2] / "docs" / "check.md").read_text(encoding="utf-8")
    shown = re.search(
        r"\$ cat person.json\n(.*?)\$ cat answer.json\n(.*?)\$ infernix check .*?\n(.*?)```", page, re.DOTALL
    )
    schema, answer, printed = shown.groups()
    done = invoke(write("person.json", schema), "--instance", write("answer.json", answer))
    measured = re.compile(r"^  (?:compiled in +[0-9.]+ s|size +([0-9,]+) bytes)$", re.MULTILINE)
    assert measured.sub("", done.output).rstrip() == measured.sub("", printed).rstrip()
    sizes = [int(found.replace(",", "")) for found in measured.findall(done.output + printed) if found]
    assert max(sizes[0], sizes[2]) <= 2 * min(sizes[0], sizes[2])
    assert sizes[1] == sizes[3], "of the instance"


def test_control_characters_do_not_reach_the_terminal(write):
    shown = invoke(write("a.json", '{"properties": {"\\u001b[31m": {"type": "frog"}}}')).output
    assert "\x1b" not in shown
    assert "frog" in shown


def test_nothing_of_vllm_or_torch_is_imported(schema):
    program = (
        "import sys\n"
        "from infernix_plugin.entrypoints.cli import app\n"
        f"code = app(['check', {schema!r}], standalone_mode=False)\n"
        "print([name for name in ('vllm', 'torch', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_grammar_in_lark_takes_the_way_it_takes_in_the_server(write):
    source = write("a.lark", 'start: "a" B\nB: /b/i\n%ignore " "\n')
    for text, accepted in (("ab", True), ("aB", True), ("a b", True), ("ac", False)):
        assert report(source, "--instance", write("x", text))["instance"]["accepted"] == accepted, text


@pytest.mark.parametrize("source", ["a" * 70_000, "(a{1,1000}){1,2000}"])
def test_a_pattern_past_a_limit_is_located_by_its_pointer(write, source):
    found = report(write("a.json", json.dumps({"properties": {"a": {"pattern": source}}})))["error"]
    assert (found["type"], found["location"]) == ("ConstraintTooLarge", "#/properties/a/pattern")


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("--kind", "foo", "'foo' is not one of 'grammar', 'json_schema', 'regex', 'choice'"),
        ("--tokenizer", "{}", "no usable tokenizer"),
        ("--tokenizer", '{"model": {}}', "no usable tokenizer"),
        ("--tokenizer", "[]", "no usable tokenizer"),
    ],
)
def test_a_wrong_option_is_wrong_usage(write, tmp_path, option, value, reason):
    if option == "--tokenizer":
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "tokenizer.json").write_text(value)
        value = str(tmp_path / "model")
    done = invoke(write("a.gbnf", 'root ::= "a"'), option, value)
    said = " ".join(done.output.replace("│", " ").split())
    assert done.exit_code == 2
    assert reason in said
    assert "Value error" not in said


@pytest.mark.parametrize(
    ("instance", "text"), [(b"\xffx", r"\xff"), ("é".encode(), "é"), (b"\xc3", r"\xc3"), (b"\\", "\\")]
)
def test_the_refused_character_is_named(write, instance, text):
    source = write("a.gbnf", 'root ::= "a"')
    refusal = report(source, "--instance", write("x", instance))["instance"]["refusal"]
    assert (refusal["byte"], refusal["text"]) == (0, text)


def test_what_is_left_out_of_the_allowed_characters_is_not_shown_as_one(write):
    shown = invoke(write("a.gbnf", "root ::= [^a]"), "--instance", write("x", "a")).output
    assert " ...; such as " in shown


def test_rules_that_add_nothing_are_warnings(write):
    text = 'root ::= "(" root ")" | a | loop\nloop ::= "b" loop\nunused ::= a\na ::= "x"\n'
    path = write("g.gbnf", text)
    assert report(path)["warnings"] == [
        {"message": "the rule 'loop' derives no finite string", "location": "2:1"},
        {"message": "the rule 'unused' cannot be reached from 'root'", "location": "3:1"},
    ]
    shown = invoke(path).stdout
    assert "warning      the rule 'loop' derives no finite string (at 2:1)" in shown
    assert report(write("fine.gbnf", 'root ::= "x"'))["warnings"] == []
    assert report(write("bad.gbnf", "root ::= root"))["warnings"] is None


def test_an_instance_of_a_structural_tag(write):
    number = {"type": "tag", "begin": "<n>", "content": {"type": "regex", "pattern": "[0-9]+"}, "end": "</n>"}
    source = write("tag.json", json.dumps(tag(number)))
    kind = ("--kind", "structural_tag")
    assert report(source, *kind, "--instance", write("x", "<n>12</n>"))["instance"]["accepted"]
    refusal = report(source, *kind, "--instance", write("x", "<n>1x</n>"))["instance"]["refusal"]
    assert (refusal["byte"], refusal["text"]) == (4, "x")
