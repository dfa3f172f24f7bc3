"""A real `vllm serve` with three MTP drafts, and the official client."""

import asyncio
import itertools
import json
import time

import httpx
import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.oracles.languages import LANGUAGES

pytestmark = pytest.mark.server

QUESTION = [{"role": "user", "content": "Describe a person."}]
NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}


@pytest.fixture(scope="module")
def client(tiny_server):
    return OpenAI(base_url=f"{tiny_server.url}/v1", api_key="none", max_retries=0, timeout=600)


def fields_of(kind, **extra):
    """The request fields of one language: the standard response_format where there is one."""
    language = LANGUAGES[kind]
    if kind == "json_schema":
        form = {"type": "json_schema", "json_schema": {"name": "person", "schema": language.value}}
        fields = {"response_format": form, "extra_body": {**NO_THINKING, **extra}}
    elif kind == "json_object":
        fields = {"response_format": {"type": "json_object"}, "extra_body": {**NO_THINKING, **extra}}
    else:
        structured = {"structured_outputs": {language.field: language.value}}
        fields = {"extra_body": {**NO_THINKING, **structured, **extra}}
    return {"model": "tiny", "max_tokens": language.max_tokens, "temperature": 1.0, **fields}


def structured(**value):
    return {"extra_body": {**NO_THINKING, "structured_outputs": value}}


def schema(value):
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": value}}
    return {"response_format": form, "extra_body": NO_THINKING}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"guided_choice": ["aa"], "guided_regex": "b", "response_format": {"type": "json_object"}}, "aa"),
        ({"guided_regex": "bb", "guided_grammar": 'root ::= "c"'}, "bb"),
        ({"guided_grammar": 'root ::= "cc"', "guided_json": {"const": 1}}, "cc"),
        ({"guided_json": {"const": 17}, "response_format": {"type": "json_object"}}, "17"),
    ],
)
def test_guided_fields_count_in_their_order(client, fields, text):
    answer = client.chat.completions.create(
        model="tiny", messages=QUESTION, max_tokens=20, extra_body={**NO_THINKING, **fields}
    )
    assert answer.choices[0].message.content == text


def test_the_record_of_a_constraint_is_no_transfer_parameter(client):
    answer = client.completions.create(model="tiny", prompt="q", extra_body={"structured_outputs": {"choice": ["a"]}})
    assert answer.choices[0].text == "a"
    assert "kv_transfer_params" not in answer.model_dump() or answer.kv_transfer_params is None


BAD = {
    "broken regex": (structured(regex="[a-"), None, "regex"),
    "unknown keyword": (schema({"type": "string", "foo": 1}), "#/foo", "foo"),
    "nested unknown keyword": (
        schema({"type": "object", "properties": {"a.b/c": {"type": "integer", "minimun": 0}}}),
        "#/properties/a.b~1c/minimun",
        "minimun",
    ),
    "empty choice": (structured(choice=[]), "structured_outputs.choice", "choice"),
    "undefined rule": (structured(grammar='root ::= "a"\n  | missing'), "2:5", "missing"),
    "no schema": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
        "response_format.json_schema.schema",
        "schema",
    ),
    "two sources": (
        {"response_format": {"type": "json_object"}, "extra_body": {"structured_outputs": {"regex": "a"}}},
        "structured_outputs",
        "response_format",
    ),
    "guided backend": ({"extra_body": {"guided_decoding_backend": "x"}}, "guided_decoding_backend", "backend"),
    "long guided regex": ({"extra_body": {"guided_regex": "a" * 4097}}, "guided_regex", "4096"),
    "bad guided regex": ({"extra_body": {"guided_regex": "a("}}, "offset 1", "guided_regex"),
    "reserved key": ({"extra_body": {"vllm_xargs": {"infernix": "x"}}}, "vllm_xargs.infernix", "reserved"),
    "stop string": ({**structured(regex="a+"), "stop": ["a"]}, "stop", "stop"),
    "foreign stop id": (
        {"extra_body": {"structured_outputs": {"regex": "a+"}, "stop_token_ids": [7]}},
        "stop_token_ids",
        "[7]",
    ),
    "ignore_eos": (
        {"extra_body": {"structured_outputs": {"regex": "a+"}, "ignore_eos": True}},
        "ignore_eos",
        "ignore_eos",
    ),
    "min_tokens": ({"extra_body": {"structured_outputs": {"regex": "a"}, "min_tokens": 3}}, "min_tokens", "min_tokens"),
    "bad_words": (
        {"extra_body": {"structured_outputs": {"regex": "a"}, "bad_words": ["a"]}},
        "bad_words",
        "bad_words",
    ),
    "allowed tokens": (
        {"extra_body": {"structured_outputs": {"regex": "a"}, "allowed_token_ids": [5]}},
        "allowed_token_ids",
        "allowed_token_ids",
    ),
    "text of the stop token": (
        {"extra_body": {"structured_outputs": {"regex": "a"}, "include_stop_str_in_output": True}},
        "include_stop_str_in_output",
        "stop token",
    ),
    "endless bias": (
        {"logit_bias": {"5": -1e31}, "extra_body": {"structured_outputs": {"regex": "a"}}},
        "logit_bias",
        "token 5",
    ),
    "beam search": (
        {"extra_body": {"structured_outputs": {"regex": "a"}, "use_beam_search": True}},
        "use_beam_search",
        "beam",
    ),
    "whitespace pattern": (
        structured(json={}, whitespace_pattern=" "),
        "structured_outputs.whitespace_pattern",
        "max_whitespace",
    ),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", BAD)
def test_a_bad_constraint_is_a_400_before_the_stream(client, name, stream):
    fields, param, says = BAD[name]
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="tiny", messages=QUESTION, max_tokens=5, stream=stream, **fields)
    body = refused.value.body
    assert body["code"] == 400
    assert says in body["message"]
    assert "parameter=" not in body["message"]
    assert "<path>" not in body["message"]
    if param is not None:
        assert body["param"] == param
    else:
        assert body["param"]


@pytest.mark.parametrize("name", ["stop string", "ignore_eos", "text of the stop token", "min_tokens", "endless bias"])
def test_options_that_could_break_a_constraint_are_a_400_of_completions_too(client, name):
    fields, param, says = BAD[name]
    extra = {key: value for key, value in fields["extra_body"].items() if key not in NO_THINKING}
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model="tiny", prompt="x", max_tokens=5, **{**fields, "extra_body": extra})
    assert refused.value.body["param"] == param
    assert says in refused.value.body["message"]


def test_min_p_and_a_logit_bias_beside_drafts(client):
    """The server drafts with MTP. A min-p of one leaves nothing but the best token, which the bias decides."""
    for word in ("red", "blue"):
        ids = {text: tokens_of(client, text)[0] for text in ("red", "blue")}
        answer = client.chat.completions.create(
            model="tiny",
            messages=QUESTION,
            temperature=1.5,
            logit_bias={str(token): 100 if text == word else -100 for text, token in ids.items()},
            extra_body={**NO_THINKING, "structured_outputs": {"choice": ["red", "blue"]}, "min_p": 1.0},
        )
        assert answer.choices[0].message.content == word


def tokens_of(client, text):
    """The tokens by which the model writes ``text``."""
    answer = client.chat.completions.create(
        model="tiny",
        messages=QUESTION,
        temperature=0,
        extra_body={**NO_THINKING, "structured_outputs": {"choice": [text]}, "return_token_ids": True},
    )
    return answer.choices[0].token_ids


def test_an_annotation_keyword_is_fine(client):
    fields = schema({"type": "string", "contentEncoding": "base64", "maxLength": 4})
    answer = client.chat.completions.create(model="tiny", messages=QUESTION, max_tokens=30, **fields)
    assert len(json.loads(answer.choices[0].message.content)) <= 4


def test_a_bad_responses_request_is_a_400(client):
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(
            model="tiny", input="x", text={"format": {"type": "json_schema", "name": "x", "schema": {"foo": 1}}}
        )
    assert refused.value.body["param"] == "#/foo"


def test_several_choices(client):
    answer = client.chat.completions.create(messages=QUESTION, n=3, **fields_of("regex"))
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    for choice in answer.choices:
        LANGUAGES["regex"].check(choice.message.content, choice.finish_reason)


@pytest.fixture(scope="module")
def dead_end(tiny_model):
    """A structural tag that asks for a stop token in the middle of its content, which nothing may write."""
    config = json.loads((tiny_model / "generation_config.json").read_text())
    elements = [{"type": "const_string", "value": "aaaa"}, {"type": "token", "token": config["eos_token_id"][0]}]
    tag = {"type": "structural_tag", "format": {"type": "sequence", "elements": elements}}
    return structured(structural_tag=json.dumps(tag))


def test_a_dead_end_is_an_error_of_its_request_alone(client, dead_end):
    with pytest.raises(openai.UnprocessableEntityError) as failed:
        client.chat.completions.create(model="tiny", messages=QUESTION, max_tokens=30, **dead_end)
    assert failed.value.status_code == 422
    assert "no token of the model's vocabulary" in failed.value.body["message"]
    with pytest.raises(openai.UnprocessableEntityError):
        client.chat.completions.create(model="tiny", messages=QUESTION, max_tokens=30, n=3, **dead_end)
    answer = client.chat.completions.create(messages=QUESTION, **fields_of("choice"))
    LANGUAGES["choice"].check(answer.choices[0].message.content, answer.choices[0].finish_reason)


def test_a_dead_end_in_a_stream_is_readable(client, dead_end):
    with pytest.raises(openai.APIError, match="no token of the model's vocabulary"):
        for _ in client.chat.completions.create(
            model="tiny", messages=QUESTION, max_tokens=30, stream=True, **dead_end
        ):
            pass
    *_, last = client.responses.create(
        model="tiny", input="x", max_output_tokens=30, stream=True, extra_body=dead_end["extra_body"]
    )
    assert last.type == "error"
    assert "no token of the model's vocabulary" in last.message


def test_two_hundred_requests_eight_at_a_time(tiny_server):
    """Mixed kinds and free text, with bad requests and hang-ups between them that must disturb nobody."""
    before = tiny_server.error_lines()
    kinds = [*LANGUAGES, None]

    async def run():
        client = AsyncOpenAI(base_url=f"{tiny_server.url}/v1", api_key="none", max_retries=0, timeout=600)
        gate = asyncio.Semaphore(8)

        async def one(index, kind):
            async with gate:
                if index % 20 == 7:
                    with pytest.raises(openai.BadRequestError):
                        await client.chat.completions.create(model="tiny", messages=QUESTION, **structured(regex="("))
                if index % 20 == 13:
                    stream = await client.chat.completions.create(
                        messages=QUESTION, stream=True, **fields_of("json_object")
                    )
                    async for _ in stream:
                        break
                    await stream.close()
                if kind is None:
                    answer = await client.chat.completions.create(
                        model="tiny", messages=QUESTION, max_tokens=20, seed=index, extra_body=NO_THINKING
                    )
                    assert answer.choices[0].finish_reason in ("stop", "length")
                    return 0
                answer = await client.chat.completions.create(messages=QUESTION, seed=index, **fields_of(kind))
                LANGUAGES[kind].check(answer.choices[0].message.content, answer.choices[0].finish_reason)
                return 1

        return sum(await asyncio.gather(*(one(index, kind) for index, kind in zip(range(200), itertools.cycle(kinds)))))

    assert asyncio.run(run()) >= 160
    assert tiny_server.error_lines() == before
    assert httpx.get(f"{tiny_server.url}/health", trust_env=False).status_code == 200
    assert tiny_server.exit_code() is None


def test_both_processes_say_that_the_plugin_is_active(tiny_server):
    log = tiny_server.log.read_text(errors="replace")
    assert "infernix-plugin is active (vLLM" in log
    assert "infernix-plugin is active in the engine core" in log


def test_both_processes_index_the_vocabulary_before_anybody_asks(tiny_server):
    deadline = time.monotonic() + 600  # they do it in the background
    while (found := tiny_server.log.read_text(errors="replace").count("is indexed for constraints")) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert found == 2


def test_a_raw_prompt_is_no_prefix_of_the_output(client):
    """A completion constrains all of its new text, whatever its prompt ends with."""
    schema_of = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    tag = {"type": "structural_tag", "format": {"type": "regex", "pattern": '[{]"a": (true|false)[}]'}}
    for prompt in ('{"a":', '{"a": true}', "[", "q", "q<think>\n", [11, 12]):
        for constraint in ({"json": schema_of}, {"structural_tag": json.dumps(tag)}):
            answer = client.completions.create(
                model="tiny", prompt=prompt, max_tokens=300, seed=1, extra_body={"structured_outputs": constraint}
            )
            assert answer.choices[0].finish_reason == "stop"
            assert isinstance(json.loads(answer.choices[0].text)["a"], bool)


OPTIONS = {
    "stop": ["x"],
    "stop_token_ids": [7],
    "include_stop_str_in_output": True,
    "ignore_eos": True,
    "skip_special_tokens": False,
    "use_beam_search": True,
}


@pytest.mark.parametrize("option", OPTIONS)
def test_options_that_break_or_show_the_end_are_refused_beside_tools_and_content(client, option):
    tools = [{"type": "function", "function": {"name": "ping"}}]
    for fields in ({"tools": tools, "tool_choice": "required"}, {"response_format": {"type": "json_object"}}):
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(
                model="tiny", messages=QUESTION, max_tokens=2, extra_body={option: OPTIONS[option]}, **fields
            )
        assert refused.value.param == option
        assert len(refused.value.body["message"]) > len(option) + 20  # the reason
