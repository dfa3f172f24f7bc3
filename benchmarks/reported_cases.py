"""What users reported of tool calls (D) and of continued messages (F): vLLM alone and with the plugin, side by side.

Each case is one minimal request, or one output that the server is asked to read, with a judge that knows neither
server. vLLM alone gets the flags that it needs for Qwen's calls. Both servers run the same tiny checkpoint, whose
weights know nothing: what is judged is what a server lets through, and how it reads it.

    python -m benchmarks.reported_cases --output docs/benchmarks/reported-cases.md
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import httpx
import jsonschema
import typer

from infernix_plugin.entrypoints.demo.server import serve
from infernix_plugin.model_executor.tiny import make_tiny_model
from infernix_plugin.seams.versions import installed_version

Call = tuple[str, Any]
ARGUMENTS = [
    "--served-model-name=tiny",
    "--max-model-len=20480",
    "--max-num-seqs=4",
    "--enforce-eager",
    "--no-enable-prefix-caching",
    "--enable-scale-out",  # the endpoint that reads a given output
]
FLAGS_OF_VLLM = ["--reasoning-parser=qwen3", "--tool-call-parser=qwen3_coder", "--enable-auto-tool-choice"]
PLAIN, THINKING = {"enable_thinking": False}, {"enable_thinking": True}
ASK = [{"role": "user", "content": "q"}]
SEEDS = range(8)


@dataclass
class Answer:
    """Of Chat, whole or put together from a stream."""

    reasoning: str
    content: str
    calls: list[Call]
    finish: str
    fragments: int = 0
    """Of arguments, in a stream."""


class Server:
    """Requests to one of the two servers."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=300, trust_env=False)

    def is_alive(self) -> bool:
        """Whether it would answer another request."""
        try:
            fields = {"model": "tiny", "messages": ASK, "max_tokens": 1}
            return self._http.post("/v1/chat/completions", json=fields).status_code == 200
        except httpx.HTTPError:
            return False

    def post(self, path: str, **body: Any) -> tuple[int, Any]:
        """The status and the decoded answer."""
        answer = self._http.post(path, json={"model": "tiny", **body})
        return answer.status_code, answer.json()

    def get(self, path: str, **body: Any) -> Any:
        """The decoded answer of a request that has to succeed."""
        status, answer = self.post(path, **body)
        assert status == 200, f"HTTP {status}: {str(answer)[:90]}"
        return answer

    def chat(self, **body: Any) -> Answer:
        """An answer of Chat, however it comes."""
        defaults = {"messages": ASK, "max_tokens": 300, "seed": 1, "chat_template_kwargs": PLAIN}
        body = defaults | body
        if body.get("stream"):
            return self._streamed(body)
        (choice,) = self.get("/v1/chat/completions", **body)["choices"]
        return _answer(choice["message"], choice["finish_reason"])

    def _streamed(self, body: dict[str, Any]) -> Answer:
        deltas, finish = [], ""
        with self._http.stream("POST", "/v1/chat/completions", json={"model": "tiny", **body}) as answer:
            assert answer.status_code == 200, f"HTTP {answer.status_code}"
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    for choice in json.loads(line.removeprefix("data: ")).get("choices", ()):
                        deltas.append(choice["delta"])
                        finish = choice["finish_reason"] or finish
        return _joined(deltas, finish)

    def read(self, text: str, *functions: dict[str, Any], thinking: bool = False, **fields: Any) -> Answer:
        """What the server makes of an output, which nothing constrains; whole and streamed, and both must agree."""
        tools = [{"type": "function", "function": function} for function in functions]
        request = {"model": "tiny", "messages": ASK, "chat_template_kwargs": THINKING if thinking else PLAIN, **fields}
        request |= {"tools": tools} if tools else {}
        prompt = self.get("/tokenize", messages=ASK, chat_template_kwargs=request["chat_template_kwargs"])["tokens"]
        tokens = self.get("/tokenize", prompt=f"{text}<|im_end|>", add_special_tokens=False)["tokens"]
        common = {"chat_request": request, "prompt_token_ids": prompt}
        choice = {"index": 0, "token_ids": tokens, "finish_reason": "stop"}
        response = {"choices": [choice], "prompt_token_ids": prompt}
        (one,) = self.get("/v1/chat/completions/derender", generate_response=response, **common)["choices"]
        whole, streamed = _answer(one["message"], one["finish_reason"]), _joined(list(self._deltas(tokens, common)), "")
        assert (whole.content, whole.calls) == (streamed.content, streamed.calls), "stream and whole differ"
        return whole

    def _deltas(self, tokens: list[int], common: dict[str, Any]) -> Iterator[dict[str, Any]]:
        state = None
        for at, token in enumerate(tokens):
            last = at + 1 == len(tokens)
            choice = {"index": 0, "token_ids": [token], "finish_reason": "stop" if last else None}
            body = {"stream": True, "generate_chunk": {"choices": [choice]}, "stream_state": state, **common}
            answer = self.get("/v1/chat/completions/derender", **body)
            state = answer["stream_state"]
            yield from (choice["delta"] for choice in answer["chunk"]["choices"])


def _answer(message: dict[str, Any], finish: str) -> Answer:
    calls = [
        (call["function"]["name"], _decoded(call["function"]["arguments"])) for call in message.get("tool_calls") or ()
    ]
    return Answer(message.get("reasoning") or "", message.get("content") or "", calls, finish)


def _joined(deltas: list[dict[str, Any]], finish: str) -> Answer:
    calls: list[list[str]] = []
    fragments = 0
    for delta in deltas:
        for call in delta.get("tool_calls") or ():
            if call.get("id"):
                calls.append([call["function"]["name"], ""])
            more = call["function"].get("arguments") or ""
            fragments += bool(more)
            calls[call["index"]][1] += more
    texts = ("".join(delta.get(name) or "" for delta in deltas) for name in ("reasoning", "content"))
    read = [(name, _decoded(arguments)) for name, arguments in calls] if finish != "length" else []
    return Answer(*texts, read, finish, fragments)


def _decoded(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        raise AssertionError(f"arguments are no JSON: {arguments[:60]!r}") from None


# The cases ----------------------------------------------------------------------------------------------------------

Judge = Callable[[Server], None]
CASES: dict[str, tuple[str, Judge]] = {}


def same(found: Any, right: Any) -> None:
    """Compare, and say what was found instead."""
    assert found == right, f"got {found!r}"


def case(name: str, right: str) -> Callable[[Judge], Judge]:
    """Register a judge, which raises an error that says what is wrong."""

    def register(judge: Judge) -> Judge:
        CASES[name] = right, judge
        return judge

    return register


def parameters(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    """A closed object, all of it required if nothing else is said."""
    names = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


def function(name: str, schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A function as a tool declares it."""
    return {"name": name, "parameters": schema, **more}


def tools(*functions: dict[str, Any]) -> list[dict[str, Any]]:
    """The functions as the tools of Chat."""
    return [{"type": "function", "function": one} for one in functions]


def written(name: str, *arguments: tuple[str, str]) -> str:
    """A call in Qwen's form."""
    lines = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments)
    return f"<tool_call>\n<function={name}>\n{lines}</function>\n</tool_call>"


TEXT = {"type": "string"}
PING = function("ping", parameters())
WRITE = function("write", parameters(content=TEXT))
ANSWER = parameters(a={"type": "integer", "minimum": 0, "maximum": 99})
FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": ANSWER}}
CONTINUE = {"continue_final_message": True, "add_generation_prompt": False}


def forced(server: Server, value: Any, **schema: Any) -> Answer:
    """A call whose one argument can only have this value."""
    tool = function("f", parameters(v={"const": value, **schema}), strict=True)
    return server.chat(tools=tools(tool), tool_choice="required", parallel_tool_calls=False, max_tokens=600)


@case("D1", "a string keeps its indent and its last line break")
def _(server: Server) -> None:
    value = "    if x:\n        return 1\n"
    same(forced(server, value, type="string").calls, [("f", {"v": value})])
    same(server.read(written("write", ("content", value)), WRITE).calls, [("write", {"content": value})])


@case("D2", "a value whose end is missing is kept, in stream and whole")
def _(server: Server) -> None:
    text = '<tool_call>\n<function=write>\n<parameter=content>\n{"x":1}\n</function>\n</tool_call>'
    same(server.read(text, WRITE).calls, [("write", {"content": '{"x":1}'})])


@case("D3", "required: one call or more and nothing else; named: that tool")
def _(server: Server) -> None:
    named = {"type": "function", "function": {"name": "write"}}
    short = function("write", parameters(content={"enum": ["a", "b"]}), strict=True)
    for seed in SEEDS:
        for choice, names in (("required", {"ping", "write"}), (named, {"write"})):
            answer = server.chat(tools=tools(PING, short), tool_choice=choice, seed=seed, temperature=1.5)
            assert not answer.content, "text beside the calls"
            assert answer.finish == "length" or answer.calls, "no call"
            assert {name for name, _ in answer.calls} <= names, f"calls {answer.calls}"


@case("D4", "none: markup is text, nothing is lost, no call")
def _(server: Server) -> None:
    text = f"A call: {written('ping')} is written so."
    answer = server.read(text, PING, tool_choice="none")
    same((answer.content, answer.calls), (text, []))


@case("D5", "a call before </think> is a call")
def _(server: Server) -> None:
    answer = server.read(f"hm\n{written('ping')}</think>", PING, thinking=True)
    same(answer.calls, [("ping", {})])
    assert "tool_call" not in answer.reasoning


@case("D6", "a strict tool without arguments ends at once")
def _(server: Server) -> None:
    strict = function("ping", parameters(), strict=True)
    for seed in SEEDS:
        fields = {"tool_choice": "required", "parallel_tool_calls": False, "temperature": 1.5, "max_tokens": 60}
        answer = server.chat(tools=tools(strict), seed=seed, **fields)
        same(answer.calls, [("ping", {})])


@case("D7", "strict does not reach the prompt")
def _(server: Server) -> None:
    def prompt(**more: Any) -> list[int]:
        return server.get("/tokenize", messages=ASK, tools=tools(function("ping", parameters(), **more)))["tokens"]

    assert prompt() == prompt(strict=True), "another prompt"


@case("D8", "a schema beside tools: an answer and a call are both in reach")
def _(server: Server) -> None:
    kinds = set()
    for seed in range(24):
        answer = server.chat(tools=tools(PING), response_format=FORM, seed=seed, temperature=1.5)
        if answer.finish != "length":
            assert bool(answer.content) != bool(answer.calls)
            if answer.content:
                jsonschema.validate(_decoded(answer.content), ANSWER)
            kinds.add(bool(answer.calls))
    assert kinds == {True, False}, f"only {'calls' if kinds == {True} else 'answers'}"


@case("D9", "an argument twice: valid JSON, the same in stream and whole")
def _(server: Server) -> None:
    for second in ("1", "2"):
        ((_, arguments),) = server.read(written("write", ("content", "1"), ("content", second)), WRITE).calls
        assert arguments["content"] in ("1", second)


@case("D10", "a long string leaves in many fragments, and is whole")
def _(server: Server) -> None:
    value = "a line of text\n" * 680
    tool = function("f", parameters(v={"type": "string", "const": value}), strict=True)
    fields = {"tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 12000, "stream": True}
    # Without a seed: vLLM 0.32 alone dies of a seeded request on a CPU whose prompt comes in several chunks.
    answer = server.chat(tools=tools(tool), seed=None, **fields)
    same(answer.calls, [("f", {"v": value})])
    assert answer.fragments > 100, f"{answer.fragments} fragments"


@case("D11", "the schema says what a text is, or the schema is refused")
def _(server: Server) -> None:
    same(forced(server, "null", type="string").calls, [("f", {"v": "null"})])
    same(forced(server, {"k": 1}).calls, [("f", {"v": {"k": 1}})])
    either = function("f", parameters(v={"anyOf": [TEXT, {"type": "null"}]}), strict=True)
    status, _ = server.post(
        "/v1/chat/completions", messages=ASK, tools=tools(either), tool_choice="required", max_tokens=1
    )
    assert status == 400, "a union is let through that the form cannot tell"


@case("D12", "arguments in another order: no call is lost")
def _(server: Server) -> None:
    tool = function("f", parameters(["b"], a=TEXT, b=TEXT))
    same(server.read(written("f", ("b", "2"), ("a", "1")), tool).calls, [("f", {"a": "1", "b": "2"})])


@case("D13", "types below the root of a schema")
def _(server: Server) -> None:
    lists = {"anyOf": [{"type": "object"}, {"type": "array"}]}
    tool = function("f", parameters(v=lists, w={"anyOf": [TEXT, {"type": "array"}]}))
    same(server.read(written("f", ("v", "[1,2]"), ("w", "123")), tool).calls, [("f", {"v": [1, 2], "w": "123"})])


@case("D14", "strict and plain tools, each choice, parallel or not: served")
def _(server: Server) -> None:
    strict, plain = (function(name, parameters(v=TEXT), strict=name == "s") for name in ("s", "p"))
    for offered in ((strict,), (plain,), (strict, plain)):
        for choice in ("auto", "none", "required"):
            for parallel in (True, False):
                fields = {"tool_choice": choice, "parallel_tool_calls": parallel, "max_tokens": 3}
                server.chat(tools=tools(*offered), **fields)


@case("D15", "parallel_tool_calls false: one call, and the output ends")
def _(server: Server) -> None:
    for seed in SEEDS:
        fields = {"tool_choice": "required", "parallel_tool_calls": False, "temperature": 1.5}
        answer = server.chat(tools=tools(function("ping", parameters(), strict=True)), seed=seed, **fields)
        assert answer.finish != "length", "it goes on"
        assert len(answer.calls) == 1, f"{len(answer.calls)} calls"


@case("D16", "prose with the tag stays text")
def _(server: Server) -> None:
    text = "The tag <tool_call> opens a call, and </tool_call> ends it."
    answer = server.read(text, PING)
    same((answer.content, answer.calls), (text, []))


@case("D17", "required with 20 tools, streamed")
def _(server: Server) -> None:
    many = [function(f"tool_{index}", parameters(), strict=True) for index in range(20)]
    for seed in SEEDS:
        fields = {"tool_choice": "required", "parallel_tool_calls": False, "temperature": 1.5, "stream": True}
        answer = server.chat(tools=tools(*many), seed=seed, **fields)
        assert len(answer.calls) == 1, f"finish {answer.finish}"


@case("D18", "code in an argument keeps its line breaks")
def _(server: Server) -> None:
    code = 'def f():\n    return "\\n"\n\n\nf()'
    same(forced(server, code, type="string").calls, [("f", {"v": code})])


def turn(text: str) -> list[dict[str, str]]:
    """A conversation that ends with a message of the assistant."""
    return [*ASK, {"role": "assistant", "content": text}]


@case("F1", "a continued answer is content, with thinking on and off")
def _(server: Server) -> None:
    for kwargs in (PLAIN, THINKING):
        answer = server.chat(messages=turn("The answer"), max_tokens=8, chat_template_kwargs=kwargs, **CONTINUE)
        assert answer.content, "no content"
        assert not answer.reasoning, "content is called reasoning"


@case("F2", "a trailing message of the assistant is continued in Messages")
def _(server: Server) -> None:
    form = {"format": {"type": "json_schema", "schema": ANSWER}}
    answer = server.get("/v1/messages", messages=turn('{"a":'), output_config=form, max_tokens=300)
    text = "".join(block["text"] for block in answer["content"] if block["type"] == "text")
    jsonschema.validate(_decoded('{"a":' + text), ANSWER)


@case("F3", "closed reasoning in the message is over")
def _(server: Server) -> None:
    for text in ("<think>short plan</think>\n", "<think>\nshort plan\n</think>\n\n"):
        fields = {"chat_template_kwargs": THINKING, **CONTINUE}
        answer = server.chat(messages=turn(text), response_format=FORM, **fields)
        assert not answer.reasoning
        jsonschema.validate(_decoded(answer.content), ANSWER)


@case("F4", "open reasoning in the message goes on to its end, then comes the content")
def _(server: Server) -> None:
    fields = {"chat_template_kwargs": THINKING, "thinking_token_budget": 20, **CONTINUE}
    answer = server.chat(messages=turn("<think>\nstep 1"), response_format=FORM, **fields)
    assert answer.reasoning, "no reasoning"
    assert "think" not in answer.reasoning + answer.content, "a tag is shown"
    assert answer.content.startswith("{"), f"content {answer.content[:20]!r}"


@case("F5", "a prefix counts for the schema; a wrong one is a 400 with its offset")
def _(server: Server) -> None:
    for text in ('{"a": 1', '{"a"', "{"):
        answer = server.chat(messages=turn(text), response_format=FORM, **CONTINUE)
        jsonschema.validate(_decoded(text + answer.content), ANSWER)
    status, body = server.post("/v1/chat/completions", messages=turn('{"b'), response_format=FORM, **CONTINUE)
    assert (status, body["error"]["param"]) == (400, "offset 2")


# The run ------------------------------------------------------------------------------------------------------------


def judged(server: Server, names: list[str]) -> Iterator[tuple[str, str]]:
    """Each case with what is wrong in it, or nothing; ends early if the server dies."""
    for name in names:
        _, judge = CASES[name]
        wrong = ""
        try:
            judge(server)
        except (AssertionError, jsonschema.ValidationError, httpx.HTTPError, ValueError, KeyError) as error:
            wrong = " ".join(str(getattr(error, "message", error)).split())[:110].rstrip("\\") or "another answer"
        dead = bool(wrong) and not server.is_alive()
        yield name, "the server dies" if dead else wrong
        if dead:
            return


def run(model: Path, names: list[str], *, alone: bool) -> dict[str, str]:
    """The cases, on one server as long as it lives."""
    os.environ.update({"VLLM_CPU_OMP_THREADS_BIND": "nobind", "INFERNIX_DISABLE": "1" if alone else "0"})
    arguments = [str(model), *ARGUMENTS, *(FLAGS_OF_VLLM if alone else [])]
    print("vLLM alone" if alone else "vLLM with the plugin", flush=True)
    found: dict[str, str] = {}
    while left := [name for name in names if name not in found]:
        log = model.parent / f"{'alone' if alone else 'plugin'}-{len(found)}.log"
        with serve(arguments, log=log) as server:
            server.wait_until_healthy(lambda waited: None)
            for name, wrong in judged(Server(server.url), left):
                found[name] = wrong
                print(f"{name}: {wrong or 'right'}", flush=True)
    return found


def table(alone: dict[str, str], ours: dict[str, str]) -> str:
    """The results as Markdown."""
    lines = ["| case | right is | vLLM alone | with the plugin |", "|---|---|---|---|"]
    for name in alone:
        right, _ = CASES[name]
        cells = (f"wrong: {wrong}".replace("|", "\\|") if wrong else "right" for wrong in (alone[name], ours[name]))
        lines.append(f"| {name} | {right} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(
    output: Annotated[Path | None, typer.Option(help="Markdown file to write.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Name of a case; repeat it. All by default.")] = None,
) -> None:
    """Run both, and print the table."""
    names = only or list(CASES)
    model = Path(tempfile.mkdtemp(prefix="infernix-reported-cases-")) / "tiny"  # it stays, with the servers' logs
    make_tiny_model(model)
    alone, ours = (run(model, names, alone=first) for first in (True, False))
    flags = " ".join(f"`{flag}`" for flag in FLAGS_OF_VLLM)
    wrong = [sum(map(bool, results.values())) for results in (alone, ours)]
    text = (
        "# Reported cases, vLLM alone and with the plugin\n\n"
        "Areas D (tool calls in Qwen's form) and F (continued messages) of what users reported in public threads, as\n"
        f"minimal requests and outputs. vLLM {installed_version()} alone runs with\n{flags};\n"
        "the plugin needs no flag. Printed by `python -m benchmarks.reported_cases`.\n\n"
        f"Of {len(names)} cases, vLLM alone gets {wrong[0]} wrong, vLLM with the plugin {wrong[1]}.\n\n"
        f"{table(alone, ours)}\n"
    )
    print(text)
    if output:
        output.write_text(text)


if __name__ == "__main__":
    typer.run(main)
