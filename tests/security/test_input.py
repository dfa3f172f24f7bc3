"""What a client sends stays data: reserved names are refused, errors quote little of it, nothing is fetched."""

import json
import socket
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from vllm.entrypoints.serve.exception_handling.error_response import create_error_response
from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import SamplingParams, StructuredOutputsParams

from infernix_plugin import ConstraintCompiler, ConstraintError, OutputConstraint, TokenDomain
from infernix_plugin.entrypoints.carrier import carrying
from infernix_plugin.entrypoints.options import check_request
from infernix_plugin.entrypoints.refusals import refusal
from infernix_plugin.entrypoints.validation import validate_sampling_params
from infernix_plugin.errors import ConflictingConstraints, InfernixError, InvalidGrammar, bounded
from infernix_plugin.seams import error_text
from infernix_plugin.structured_output.framed_output import FramedOutput
from infernix_plugin.structured_output.record import error_record
from infernix_plugin.structured_output.translation import asked_of
from tests.fuzz.languages import schemas
from tests.integration.test_refusals import plain_request

BIG = "k" * 100_000
PIECES = [bytes([byte]) for byte in range(256)] + [b"<end>"]
COMPILER = ConstraintCompiler(TokenDomain(PIECES, control={"<end>": 256}, stop=[256]), max_compile_seconds=0.5)
MOST = 2_000
"""Characters of a whole error as the client sees it."""

schema, grammar, regex = OutputConstraint.json_schema, OutputConstraint.grammar, OutputConstraint.regex
QUOTING = {
    "a member's name": lambda: schema({"properties": {BIG: {"foo": 1}}}),
    "a keyword": lambda: schema({BIG: 1}),
    "a reference": lambda: schema({"$ref": f"#/{BIG}"}),
    "an address": lambda: schema({"$ref": f"http://x/{BIG}"}),
    "a type": lambda: schema({"type": BIG}),
    "a format": lambda: schema({"format": BIG}),
    "a dialect": lambda: schema({"$schema": BIG}),
    "a pattern": lambda: schema({"patternProperties": {f"({BIG}": {}}}),
    "a bound": lambda: schema({"minimum": BIG}),
    "broken JSON": lambda: schema(f"{{{BIG}"),
    "a chain of names": lambda: schema({"properties": {BIG: {"properties": {BIG: {"items": {BIG: 1}}}}}}),
    "two constants": lambda: schema({"allOf": [{"const": BIG}, {"const": 1}]}),
    "a group's name": lambda: regex(f"(?<{BIG}>a"),
    "a property": lambda: regex(f"\\p{{{BIG}}}"),
    "a rule": lambda: grammar(f"root ::= {BIG}"),
    "a macro": lambda: grammar(f'root ::= {BIG.upper()}("a")'),
    "a rule given twice": lambda: grammar(f'root ::= "a"\n{BIG} ::= "b"\n{BIG} ::= "b"'),
    "a Lark rule": lambda: grammar(f"start: {BIG}"),
    "an import": lambda: grammar(f"%import {BIG}.X\nstart: X"),
    "a choice": lambda: OutputConstraint.choice([BIG + "\ud800"]),
}


@pytest.mark.parametrize("name", QUOTING)
def test_an_error_quotes_a_bounded_part_of_the_input(name):
    with pytest.raises(ConstraintError) as refused:
        COMPILER.compile(QUOTING[name]())
    shown = refusal(refused.value, "response_format")
    assert len(str(shown)) + len(shown.parameter) < MOST
    assert len(refused.value.message) + len(refused.value.hint or "") < MOST
    assert "k" * 500 not in str(shown) + shown.parameter
    assert len(str(refused.value)) < 2 * MOST, "offline, the exception itself is what is seen"


def test_vllms_own_errors_quote_a_bounded_part_too():
    respond = error_text.SEAM.replace(create_error_response)
    with pytest.raises(VLLMValidationError) as two:
        StructuredOutputsParams(regex=BIG, grammar=BIG)
    assert len(create_error_response(two.value).error.message) > len(BIG)
    assert len(respond(two.value).error.message) < MOST + 10
    named = respond(VLLMValidationError("short", parameter=BIG)).error
    assert len(named.message) < MOST + 10
    assert len(named.param) < MOST
    assert respond("plain").error.model_dump() == create_error_response("plain").error.model_dump()


def test_a_long_place_loses_its_middle():
    assert bounded("#/a") == "#/a"
    shown = bounded("#/" + "a" * 1000 + "/minimun")
    assert len(shown) <= 400
    assert shown.startswith("#/aaa")
    assert shown.endswith("aaa/minimun")
    assert "…" in shown


@pytest.mark.parametrize(
    "key", ["infernix", "Infernix", "infernix_framed_output", "INFERNIX.x", "infernix" + "y" * 9000]
)
@pytest.mark.parametrize("field", ["vllm_xargs", "kv_transfer_params"])
def test_reserved_keys_are_refused(field, key):
    with pytest.raises(ConflictingConstraints, match="reserved") as refused:
        check_request(plain_request(**{field: {"other": 1, key: "x"}}))
    assert refused.value.location.startswith(f"{field}.{key[:8]}")
    assert len(refused.value.location) < 200
    check_request(plain_request(**{field: {"other": 1, "not infernix": "x"}}))


@pytest.mark.parametrize("args", [{"infernix": {}}, {"Infernix_x": 1}, {"kv_transfer_params": {"infernix": {}}}])
def test_reserved_keys_of_offline_scripts_are_refused(args):
    with pytest.raises(VLLMValidationError, match="reserved"):
        validate_sampling_params(None, None, SamplingParams(extra_args=args))
    validate_sampling_params(None, None, SamplingParams(extra_args={"other": 1, "kv_transfer_params": {"a": 1}}))


FRAMED = FramedOutput(None, OutputConstraint.regex("a"), raw=True).text()
RESERVED_TAGS = {
    "what the server writes": FRAMED,
    "its type alone": '{"type": "infernix_framed_output"}',
    "its type in other letters": '{"type": "\\u0049nfernix_x", "format": {"type": "any_text"}}',
    "its mark": '{"format": {"type": "any_text"}, "infernix_raw": true}',
    "its mark, escaped": '{"format": {"type": "any_text"}, "\\u0069nfernix_raw": true}',
}


@pytest.mark.parametrize("name", RESERVED_TAGS)
def test_structural_tags_of_the_server_are_refused_from_clients(name):
    with pytest.raises(ConflictingConstraints, match="reserved") as refused:
        check_request(plain_request(structured_outputs=StructuredOutputsParams(structural_tag=RESERVED_TAGS[name])))
    assert refused.value.location == "structured_outputs.structural_tag"


def test_a_request_is_rendered_again_for_its_next_turn():
    check_request(plain_request(structured_outputs=carrying(FRAMED)))
    form = SimpleNamespace(type="structural_tag", model_extra={"infernix_raw": True})
    with pytest.raises(ConflictingConstraints, match="reserved"):
        check_request(plain_request(response_format=form))
    check_request(plain_request(structured_outputs=StructuredOutputsParams(structural_tag="{")))


@pytest.mark.parametrize(
    "text",
    [
        "infernix_framed_output {",
        '{"type": "infernix_framed_output"}',
        '{"type": "infernix_framed_output", "contract": null, "content": ["regex", 5, []], "prefix": "", "raw": true}',
        '{"type": "infernix_framed_output", "contract": null, "content": null, "prefix": 5, "raw": true}',
        '{"type": "infernix_framed_output", "contract": null, "content": ["x"], "prefix": "", "raw": true}',
        FRAMED.replace("true", "1"),
        '{"format": ' + "[" * 100_000,
    ],
)
def test_structural_tags_that_nobody_writes_are_refused(text):
    with pytest.raises(InvalidGrammar) as refused:
        asked_of(StructuredOutputsParams(structural_tag=text))
    assert len(str(refused.value)) < MOST
    assert asked_of(StructuredOutputsParams(structural_tag=FRAMED)).text() == FRAMED


def test_a_foreign_exception_says_nothing_of_its_values():
    told = error_record(KeyError(BIG))
    assert told["type"] == InfernixError.__name__
    assert "k" * 20 not in str(told)


EXTERNAL = {
    "a reference": {"$ref": "https://example.com/schema.json"},
    "a reference to a file": {"$ref": "file:///etc/passwd"},
    "a reference to a path": {"$ref": "/etc/passwd"},
    "a reference to a share": {"$ref": "//example.com/share/schema.json#/$defs/a"},
    "a reference to data": {"$ref": "data:application/schema+json,true"},
    "a dynamic reference": {"$dynamicRef": "https://example.com/schema.json#meta"},
    "a recursive reference": {"$recursiveRef": "https://example.com/schema.json"},
    "a reference below an id": {"$id": "https://example.com/base/", "properties": {"a": {"$ref": "other.json"}}},
    "a reference below a file": {"$id": "file:///etc/", "items": {"$ref": "passwd"}},
    "a dialect of one's own": {"$schema": "https://example.com/dialect", "type": "object"},
    "a dialect in a file": {"$schema": "file:///etc/passwd", "type": "object"},
}
VOCABULARY = {"$vocabulary": {"https://example.com/vocabulary": False, "file:///etc/passwd": False}, "type": "null"}
OPENED: list[tuple[str, object]] | None = None
"""What was opened since it was made a list."""


def _watch(event, arguments):
    if OPENED is not None and event.split(".")[0] in ("open", "socket", "subprocess", "os", "urllib", "http", "ctypes"):
        OPENED.append((event, arguments))


@pytest.fixture(scope="module")
def watching():
    """A watch on everything that the interpreter opens; a hook cannot be taken away, so it is asleep outside of it."""
    sys.addaudithook(_watch)

    @contextmanager
    def watched():
        global OPENED
        OPENED = []
        try:
            yield OPENED
        finally:
            OPENED = None

    return watched


def judged(document):
    """The refusal of a schema, ``None`` if it is enforced."""
    try:
        COMPILER.compile(schema(document))
    except ConstraintError as error:
        return error
    return None


@pytest.mark.parametrize("name", EXTERNAL)
def test_a_schema_fetches_nothing(name, watching):
    """It is refused, and nobody tried to open a connection or a file to find out."""
    judged(EXTERNAL[name])  # whatever is loaded on first use is loaded now
    with watching() as opened:
        refused = judged({**EXTERNAL[name], "description": "so that it is not remembered"})
    assert opened == []
    assert refused.location.startswith("#")


def test_no_schema_of_the_test_suite_fetches_anything(watching):
    """Also those that name the files of the suite, which are on this machine."""
    documents = [json.loads(text) for text in schemas() if "://" in text or "$vocabulary" in text] + [VOCABULARY]
    assert len(documents) > 100
    for document in documents:
        judged(document)
    fresh = ConstraintCompiler(COMPILER.domain, max_compile_seconds=0.5)
    fresh.compile(OutputConstraint.json_object())
    with watching() as opened:
        for document in documents:
            with suppress(ConstraintError):
                fresh.compile(schema(document))
    assert opened == []


def test_the_watch_sees(watching):
    with watching() as opened:
        Path(__file__).read_bytes()
        with suppress(OSError), socket.socket() as connection:
            connection.connect(("127.0.0.1", 1))
    assert {event for event, _ in opened} >= {"open", "socket.connect"}
