"""The engine core's side: a record for every way in which a constrained request ends, and one only."""

from concurrent.futures import Future
from queue import Queue
from types import SimpleNamespace

import pytest
from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason
from vllm.v1.request import RequestStatus

from infernix_plugin import ConstraintCompiler, OutputConstraint, TokenDomain
from infernix_plugin.errors import InvalidRegex
from infernix_plugin.seams import request_output, scheduler_output
from infernix_plugin.structured_output.aborted import AbortedRequests
from infernix_plugin.structured_output.constrained import ConstrainedRequest
from infernix_plugin.structured_output.failures import StepFailures
from infernix_plugin.structured_output.manager import InfernixManager
from infernix_plugin.structured_output.record import detach

PIECES = [bytes([byte]) for byte in range(256)] + [b"<end>"]
COMPILER = ConstraintCompiler(TokenDomain(PIECES, control={"<end>": 256}, stop=[256]))
PREPARED = COMPILER.prepare(OutputConstraint.regex("[a-z]*"))


def request(name, grammar, *, client=0, stop=(), **params):
    params = params or {"regex": "[a-z]*"}
    return SimpleNamespace(
        request_id=name,
        client_index=client,
        sampling_params=SimpleNamespace(stop=list(stop)),
        use_structured_output=grammar is not False,
        structured_output_request=SimpleNamespace(grammar=grammar, params=StructuredOutputsParams(**params)),
    )


@pytest.fixture
def manager():
    made = InfernixManager.__new__(InfernixManager)
    made.aborted, made.failures, made._compiler, made._preparing = AbortedRequests(), StepFailures(), None, {}
    made.vllm_config = SimpleNamespace(parallel_config=SimpleNamespace(data_parallel_index=1))
    return made


def test_a_refused_and_an_unfinished_constraint_have_complete_records(manager):
    running = ConstrainedRequest(PREPARED, kind="regex")
    whole = set(manager.record_of(request("r", running))) | {"branch"}
    refused = manager.record_of(request("r", InvalidRegex("broken", location="offset 1")))
    assert set(refused) == whole | {"error"}
    assert refused["error"] == {"type": "InvalidRegex", "message": "broken", "location": "offset 1", "hint": None}
    pending = manager.record_of(request("r", None, json={"type": "string"}))
    assert set(pending) == whole
    assert (pending["kind"], pending["complete"], pending["cache"]) == ("json_schema", False, None)
    assert manager.record_of(request("r", None, json=" "))["kind"] == "json_schema"


def scheduler(manager, *requests):
    return SimpleNamespace(
        structured_output_manager=manager,
        requests={each.request_id: each for each in requests},
        grammar_compile_error_reqs=set(),
    )


def finish(self, request_ids, finished_status):
    return [self.requests.pop(name) for name in request_ids if name in self.requests]


def update(outputs):
    """vLLM's method, which ends some requests in this step."""
    return scheduler_output.UPDATE.replace(lambda self, plan, output: outputs)


def step(self, outputs, scheduled=()):
    plan = SimpleNamespace(num_scheduled_tokens=dict.fromkeys(scheduled, 1))
    return update(outputs)(self, plan, SimpleNamespace())


def records_in(outputs):
    return {output.request_id: detach(output.kv_transfer_params)[1:] for output in outputs.outputs}


def test_a_request_that_ends_has_its_record_and_a_running_one_has_none(manager):
    ended, running = (request(name, ConstrainedRequest(PREPARED, kind="regex")) for name in ("ended", "running"))
    free = request("free", False)
    last = EngineCoreOutput("ended", [1], finish_reason=FinishReason.STOP, kv_transfer_params={"theirs": 1})
    going, other = EngineCoreOutput("running", [1]), EngineCoreOutput("free", [1], finish_reason=FinishReason.STOP)
    outputs = {0: EngineCoreOutputs(outputs=[last, going, other])}
    step(scheduler(manager, ended, running, free), outputs, ["ended", "running", "free"])
    theirs, record, figures = detach(last.kv_transfer_params)
    assert theirs == {"theirs": 1}
    assert record["kind"] == "regex"
    assert figures == {"index": 1, "cache_bytes": 0, "cache_entries": 0, "compiling": 0}
    assert going.kv_transfer_params is other.kv_transfer_params is None


def test_an_aborted_request_is_reported_once_to_its_own_client(manager):
    gone = [
        request("first", ConstrainedRequest(PREPARED, kind="regex"), client=0),
        request("second", None, client=2),
        request("free", False, client=0),
    ]
    engine = scheduler(manager, *gone)
    finish_requests = scheduler_output.FINISH.replace(finish)
    assert finish_requests(engine, ["first", "second", "free", "unknown"], RequestStatus.FINISHED_ABORTED) == gone
    assert finish_requests(engine, ["first"], RequestStatus.FINISHED_ABORTED) == []
    other = EngineCoreOutput("other", [1])
    sent = step(engine, {0: EngineCoreOutputs(outputs=[other])})
    assert [output.request_id for output in sent[0].outputs] == ["other", "first"]
    assert [output.request_id for output in sent[2].outputs] == ["second"]
    assert sent[2].outputs[0].finish_reason is FinishReason.ABORT
    assert records_in(sent[2])["second"][0]["kind"] == "regex"
    assert step(engine, {}) == {}


@pytest.mark.parametrize("status", [RequestStatus.FINISHED_ABORTED, RequestStatus.FINISHED_ERROR])
def test_a_request_that_is_finished_from_outside_gives_its_compile_up(manager, status):
    manager._preparing = {"gone": Future(), "stays": Future()}
    gone = request("gone", None)
    scheduler_output.FINISH.replace(finish)(scheduler(manager, gone, request("stays", None)), ["gone"], status)
    assert [name for name, done in manager._preparing.items() if done.cancelled()] == ["gone"]


def test_what_the_engine_core_finishes_with_an_error_is_no_abort(manager):
    engine = scheduler(manager, request("failed", ConstrainedRequest(PREPARED, kind="regex")))
    scheduler_output.FINISH.replace(finish)(engine, ["failed"], RequestStatus.FINISHED_ERROR)
    assert step(engine, {}) == {}


def test_an_engine_that_pauses_or_stops_sends_the_records_at_once(manager):
    constrained = request("constrained", ConstrainedRequest(PREPARED, kind="regex"), client=3)
    free = request("free", False, client=3)
    engine = scheduler(manager, constrained, free)
    aborted = scheduler_output.FINISH.replace(finish)(engine, ["constrained", "free"], RequestStatus.FINISHED_ABORTED)
    by_vllm = []
    core = SimpleNamespace(structured_output_manager=manager, output_queue=Queue())
    scheduler_output.SEND_ABORTED.replace(lambda self, requests: by_vllm.extend(requests))(core, aborted)
    assert by_vllm == [free]
    client, outputs = core.output_queue.get_nowait()
    assert (client, outputs.finished_requests) == (3, {"constrained"})
    assert records_in(outputs)["constrained"][0]["kind"] == "regex"
    assert step(engine, {}) == {}, "it was sent already"


def test_the_api_process_settles_each_once_and_hides_it(monkeypatch):
    """Also for a request that is not there any more, as after a client left."""
    from infernix_plugin.observation import settle
    from infernix_plugin.structured_output.record import attach, blank_record

    settled, seen = [], []
    monkeypatch.setattr(settle, "settle", lambda ended, count: settled.append((ended, count)))

    def original(self, outputs, *rest):
        seen.extend(output.kv_transfer_params for output in outputs)
        return SimpleNamespace(reqs_to_abort=[])

    process_outputs = request_output.PROCESS_OUTPUTS.replace(original)
    parent = SimpleNamespace(external_req_id="chat-1")
    states = {
        "0_chat-1": SimpleNamespace(parent_req=parent, request_index=4, external_req_id="no", queue=None),
        "chat-2": SimpleNamespace(parent_req=None, request_index=0, external_req_id="chat-2", queue=None),
    }
    figures = {"index": 0, "cache_bytes": 1, "cache_entries": 1, "compiling": 0}
    ends = {"finish_reason": FinishReason.ABORT}
    outputs = [
        EngineCoreOutput(
            "0_chat-1", [], kv_transfer_params=attach({"theirs": 1}, blank_record("regex"), figures), **ends
        ),
        EngineCoreOutput("gone-1", [], kv_transfer_params=attach(None, blank_record("choice"), figures), **ends),
        EngineCoreOutput("chat-2", [1], kv_transfer_params={"theirs": 2}),
    ]
    process_outputs(SimpleNamespace(request_states=states, log_stats=True), outputs)
    assert seen == [{"theirs": 1}, None, {"theirs": 2}]
    assert [(ended.request_id, ended.index, ended.record["kind"], count) for ended, count in settled] == [
        ("chat-1", 4, "regex", True),
        ("gone-1", 0, "choice", True),
    ]
    assert settled[0][0].figures == figures
    assert "engine" not in settled[0][0].record


def test_what_a_stop_string_may_cut_has_its_record_with_every_output(manager):
    """The API process looks for stop strings, not the engine core."""
    watched, other = (
        request(name, ConstrainedRequest(PREPARED, kind="structural_tag"), stop=stop)
        for name, stop in (("watched", ["ab"]), ("other", []))
    )
    going, quiet = EngineCoreOutput("watched", [1]), EngineCoreOutput("other", [1])
    step(scheduler(manager, watched, other), {0: EngineCoreOutputs(outputs=[going, quiet])}, ["watched", "other"])
    assert detach(going.kv_transfer_params)[1]["kind"] == "structural_tag"
    assert quiet.kv_transfer_params is None


@pytest.mark.parametrize("late", [FinishReason.ABORT, FinishReason.LENGTH])
def test_an_output_that_a_stop_string_cut_is_settled_once_as_a_stop(monkeypatch, late):
    """The engine core's word comes afterwards: aborted, or ended by itself in the step after."""
    from infernix_plugin.observation import settle
    from infernix_plugin.structured_output.record import attach, blank_record

    settled, cut = [], []
    monkeypatch.setattr(settle, "settle", lambda ended, count: settled.append(ended))
    process_outputs = request_output.PROCESS_OUTPUTS.replace(
        lambda self, outputs, *rest: SimpleNamespace(reqs_to_abort=list(cut))
    )
    state = SimpleNamespace(parent_req=None, request_index=0, external_req_id="chat-1", queue=None)
    processor = SimpleNamespace(request_states={"chat-1-engine": state}, log_stats=True)

    def arrives(finish_reason):
        params = attach(None, blank_record("structural_tag"), None)
        output = EngineCoreOutput("chat-1-engine", [1], kv_transfer_params=params, finish_reason=finish_reason)
        process_outputs(processor, [output])

    arrives(None)
    assert settled == []
    cut.append("chat-1-engine")
    arrives(None)
    cut.clear()
    processor.request_states.clear()
    arrives(late)
    assert [(ended.request_id, str(ended.finish_reason)) for ended in settled] == [("chat-1", "stop")]
    arrives(late)
    assert len(settled) == 2, "it was forgotten with the engine core's word"
