"""What is compiled does not wait in line behind compiles, and what nobody waits for is given up; in both processes."""

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.structured_output.request import StructuredOutputRequest

from infernix_plugin.entrypoints import clients, validation
from infernix_plugin.framing.tools.contract import CallChoice, Tool, ToolContract
from infernix_plugin.grammar import interest
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.matching import ConstraintCompiler
from infernix_plugin.seams import server_shutdown
from infernix_plugin.settings import Settings
from infernix_plugin.structured_output import structural_tag
from infernix_plugin.structured_output.compilers import RequestCompiler
from infernix_plugin.structured_output.framed_output import FramedOutput
from infernix_plugin.structured_output.manager import InfernixManager
from tests.framing.calling import CONTROL, DOMAIN

PROMPT = [1, 2]
PATIENCE = 20.0


class Compiler:
    """Knows one regular expression."""

    def __init__(self):
        self.prepared = []

    def holds(self, asked, prompt, *, delegated=False):
        assert prompt == PROMPT
        return asked.source == "known"


class Line:
    """Compiles that nobody gets to."""

    def __init__(self):
        self.waiting = []

    def submit(self, function, *arguments):
        self.waiting.append((function, arguments))
        return Future()


def request(pattern):
    params = SimpleNamespace(structured_outputs=StructuredOutputsParams(regex=pattern), thinking_token_budget=None)
    structured = StructuredOutputRequest(params.structured_outputs)
    return SimpleNamespace(
        request_id=pattern, sampling_params=params, prompt_token_ids=PROMPT, structured_output_request=structured
    )


def result_of(asked):
    """What vLLM's scheduler finds in the request, once it is there."""
    structured = asked.structured_output_request
    structured._grammar.exception(10)
    assert structured.is_grammar_ready
    return structured.grammar


@pytest.fixture
def manager():
    made = InfernixManager.__new__(InfernixManager)
    made._compiler, made._use_async_grammar_compilation, made._preparing = Compiler(), True, {}
    made.executor, made._compiling, made._readers = None, Line(), ThreadPoolExecutor(1)
    made._prepare = lambda asked, budget: asked.sampling_params.structured_outputs.regex
    yield made
    made._readers.shutdown()


def test_the_engine_core_goes_on_with_what_it_has(manager):
    known, new = request("known"), request("new")
    manager.grammar_init(new)
    manager.grammar_init(known)
    assert result_of(known) == "known"
    ((settle, arguments),) = manager._compiling.waiting
    assert not new.structured_output_request.is_grammar_ready
    settle(*arguments)
    assert result_of(new) == "new"


def test_the_engine_core_says_what_went_wrong(manager):
    def fail(asked, budget):
        raise ValueError("no")

    manager._prepare = fail
    known = request("known")
    manager.grammar_init(known)
    assert isinstance(result_of(known), ValueError)


def test_no_request_is_lost_where_nobody_can_tell(manager):
    def holds(*_, **__):
        raise TypeError("no prompt")

    manager._compiler.holds = holds
    asked = request("new")
    manager.grammar_init(asked)
    assert result_of(asked) == "new"


def test_every_output_of_a_request_has_its_budget_of_reasoning(manager):
    """In one process they share their options, which lose it: vLLM's sampler would keep it a second time."""
    budgets = []
    manager._prepare = lambda asked, budget: budgets.append(budget)
    several = [request("known") for _ in range(3)]
    for asked in several:
        asked.sampling_params = several[0].sampling_params
    several[0].sampling_params.thinking_token_budget = 7
    for asked in several:
        manager.grammar_init(asked)
        result_of(asked)
    assert budgets == [7, 7, 7]
    assert {asked.sampling_params.thinking_token_budget for asked in several} == {None}


def test_the_engine_core_gives_up_what_a_request_that_left_waits_for(manager):
    left, wants = threading.Event(), []

    def prepare(asked, budget):
        wants.append(interest.current())
        assert left.wait(PATIENCE)
        interest.check()
        return "stays"

    manager._prepare = prepare
    gone, stays = request("gone"), request("stays")
    futures = []
    with ThreadPoolExecutor(2) as manager._compiling:
        for asked in (gone, stays):
            manager.grammar_init(asked)
            futures.append(asked.structured_output_request._grammar)
        while len(wants) < 2:
            left.wait(0.001)
        assert all(wanted() for wanted in wants)
        manager.give_up(gone)
        manager.give_up(gone)
        assert sorted(wanted() for wanted in wants) == [False, True]
        left.set()
        assert result_of(stays) == "stays"
    assert futures[0].cancelled()
    assert manager._preparing == {}


def test_the_api_process_gives_up_what_a_client_that_left_waits_for(monkeypatch):
    begun, gone, after = threading.Event(), threading.Event(), []

    def judge(*_):
        begun.set()
        assert gone.wait(PATIENCE)
        with pytest.raises(interest.CompileAbandoned):
            interest.check()
        after.append("given up")

    async def leave():
        with ThreadPoolExecutor(1) as threads:
            answer = asyncio.create_task(clients.answered(threads, None, judge))
            await asyncio.to_thread(begun.wait, PATIENCE)
            answer.cancel()
            with pytest.raises(asyncio.CancelledError):
                await answer
            gone.set()

    asyncio.run(leave())
    assert after == ["given up"]


def test_a_server_that_ends_answers_whoever_still_waits_for_a_compile():
    ours, theirs, given_up = object(), object(), threading.Event()

    def judge():
        while not given_up.wait(0.001):
            interest.check()
        return "judged"

    async def end():
        with ThreadPoolExecutor(2) as threads:
            ended = asyncio.create_task(clients.answered(threads, ours, judge))
            other = asyncio.create_task(clients.answered(threads, theirs, judge))
            while len(clients._waiting) < 2:
                await asyncio.sleep(0.001)
            engine, stopped = SimpleNamespace(model_config=ours), []
            server_shutdown.SEAM.replace(lambda self, timeout=None: stopped.append((self, timeout)))(engine, timeout=7)
            assert stopped == [(engine, 7)]
            with pytest.raises(interest.CompileAbandoned, match="the server ends"):
                await ended
            given_up.set()
            assert await other == "judged"

    asyncio.run(end())
    assert clients._waiting == {}


@pytest.mark.parametrize("pattern", ["known", "new"])
def test_the_api_process_answers_what_it_has(monkeypatch, pattern):
    judged, lines = [], []
    monkeypatch.setattr(validation, "_judge", lambda compiler, params, *_: judged.append(params.regex))
    monkeypatch.setattr(validation, "compiler_for", lambda *_: Compiler())

    class Loop(asyncio.SelectorEventLoop):
        def run_in_executor(self, executor, function, *arguments):
            lines.append(executor)
            return super().run_in_executor(executor, function, *arguments)

    params = StructuredOutputsParams(regex=pattern)
    asked = SimpleNamespace(structured_outputs=params, extract_structured_outputs=lambda: params, messages=[])
    inputs = [{"prompt_token_ids": PROMPT}]
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(validation.validate_request(None, None, asked, inputs, "structured_outputs"))
    assert judged == [pattern]
    assert lines == [validation._readers] + [validation._threads] * (pattern == "new")


TOOLS = ToolContract((Tool("f"),), CallChoice.REQUIRED)
TAG = '{"type": "structural_tag", "format": {"type": "const_string", "value": "x"}}'
ASKED = {
    "content": OutputConstraint.regex("a+"),
    "tools": FramedOutput(TOOLS, None),
    "tools or content": FramedOutput(ToolContract((Tool("f"),)), OutputConstraint.regex("b+")),
    "no tools": FramedOutput(ToolContract((Tool("f"),), CallChoice.NONE), OutputConstraint.regex("c+")),
    "a structural tag": structural_tag.from_json(TAG),
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("prompt", [[], [CONTROL["<think>"]]], ids=["content", "thinking"])
def test_what_was_prepared_is_held(asked, prompt):
    compiler = RequestCompiler(None, None, Settings())
    assert not compiler.holds(asked, prompt)  # no vocabulary yet
    compiler._compiler = ConstraintCompiler(DOMAIN)
    assert not compiler.holds(asked, prompt)
    compiler.prepare(asked, prompt)
    assert compiler.holds(asked, prompt)
    assert not compiler.holds(asked, [CONTROL["<think>"]] if not prompt else [])


def test_a_written_text_is_not_read_on_the_way():
    compiler = RequestCompiler(None, None, Settings())
    compiler._compiler = ConstraintCompiler(DOMAIN)
    asked = FramedOutput(None, OutputConstraint.regex("a+"), "aa")
    compiler.prepare(asked, [])
    assert not compiler.holds(asked, [])
