"""Two engines behind two API servers: every process has the plugin, and any of them may get any request."""

import json
import os
import re
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import psutil
import pytest
from openai import OpenAI

from benchmarks.server_watch import our_metrics
from infernix_plugin.entrypoints.demo.server import serve
from tests.engine.engine_process import ENVIRONMENT
from tests.oracles.languages import LANGUAGES
from tests.server.exploding import ENDLESS

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[2]
REQUESTS = 40
REFUSALS = 16
ARGUMENTS = [
    *("--served-model-name=tiny", "--max-model-len=2048", "--max-num-seqs=16", "--enforce-eager"),
    *("--data-parallel-size=2", "--api-server-count=2"),
    *("--speculative-config", '{"method": "mtp", "num_speculative_tokens": 3}'),
    "--scheduler-cls=tests.server.exploding.Unhurried",
]


@pytest.fixture(scope="module")
def server(tiny_model, tmp_path_factory):
    log = tmp_path_factory.mktemp("scale") / "server.log"
    with pytest.MonkeyPatch.context() as environment:
        for name, value in ENVIRONMENT.items():
            environment.setenv(name, value)
        environment.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        with serve([str(tiny_model), *ARGUMENTS], log=log) as process:
            process.wait_until_healthy(lambda waited: None)
            yield process


def ask(server, **fields):
    """One request over a connection of its own, which the system gives to either API server."""
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120) as client:
        return client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "Write something."}],
            extra_body={"chat_template_kwargs": {"enable_thinking": False}, **fields.pop("extra_body", {})},
            **fields,
        )


def total(samples, name, **labels):
    wanted = set(labels.items())
    return sum(value for (found, its), value in samples.items() if found == name and wanted <= set(its))


def test_every_process_has_the_plugin(server):
    log = server.log_text()
    for name in ("ApiServer_0", "ApiServer_1"):
        assert re.search(rf"\({name} .*infernix-plugin is active", log), name
    for name in ("EngineCore_DP0", "EngineCore_DP1"):
        assert re.search(rf"\({name} .*is active in the engine core and in 1 worker\(s\)", log), name


def test_constraints_hold_on_every_engine(server):
    def one(number):
        language = list(LANGUAGES.values())[number % len(LANGUAGES)]
        structured = {"structured_outputs": {language.field: language.value}}
        (choice,) = ask(server, max_tokens=language.max_tokens, extra_body=structured).choices
        language.check(choice.message.content, choice.finish_reason)
        return choice.model_dump()["constraint"]

    before = our_metrics(server)
    with ThreadPoolExecutor(8) as threads:
        records = list(threads.map(one, range(REQUESTS)))
    assert all(record["mask_positions"] > 0 for record in records)
    took_part = set(re.findall(r"\((ApiServer_\d) pid=\d+\) .*Constrained request ended", server.log_text()))
    assert took_part == {"ApiServer_0", "ApiServer_1"}
    metrics = httpx.get(f"{server.url}/metrics", trust_env=False).text
    for engine in "01":
        done = re.findall(rf'^vllm:request_success_total{{engine="{engine}",.*}} (\S+)$', metrics, re.MULTILINE)
        assert sum(map(float, done)) > 0, f"engine {engine} was never asked"
    for _ in range(6):  # each over a new connection, so either API server may answer
        check_sums(before, our_metrics(server), records)


def check_sums(before, after, records):
    """Whichever API server answers, it tells what all of them counted, of all engines: the sums over the records."""

    def grown(name, **labels):
        return total(after, name, **labels) - total(before, name, **labels)

    kinds = Counter(record["kind"] for record in records)
    assert {kind: grown("infernix_requests_total", kind=kind) for kind in kinds} == kinds
    assert grown("infernix_requests_total") == len(records)
    outcomes = Counter("stop" if record["terminated"] else "length" for record in records)
    assert {outcome: grown("infernix_requests_total", outcome=outcome) for outcome in outcomes} == outcomes
    for kind in kinds:
        own = [record for record in records if record["kind"] == kind]
        for name in ("mask_positions", "mask_bytes", "illegal_drafts"):
            assert grown(f"infernix_{name}_total", kind=kind) == sum(record[name] for record in own)
        for name in ("mask", "accept"):
            spent = sum(record[f"{name}_ms"] for record in own) / 1000
            assert grown(f"infernix_{name}_seconds_total", kind=kind) == pytest.approx(spent)
    for cache, count in Counter(record["cache"] for record in records).items():
        labels = {"process": "engine", "cache": cache}
        spent = sum(record["prepare_ms"] for record in records if record["cache"] == cache) / 1000
        assert grown("infernix_prepare_seconds_count", **labels) == count
        assert grown("infernix_prepare_seconds_sum", **labels) == pytest.approx(spent)
    assert grown("infernix_prepare_seconds_count", process="api") == len(records)
    for engine in "01":
        assert total(after, "infernix_engine_cache_bytes", engine=engine) > 0
    assert total(after, "infernix_api_cache_bytes") > 0
    assert total(after, "infernix_api_compile_queue") == 0


def test_every_api_server_refuses(server):
    """What each of them refused adds up: each connection is a new one, and so is that of each scrape."""
    before = our_metrics(server)
    for _ in range(REFUSALS):
        with pytest.raises(openai.BadRequestError, match="regex"):
            ask(server, extra_body={"structured_outputs": {"regex": "[a-"}})
    for _ in range(6):
        after = our_metrics(server)
        name = "infernix_refusals_total"
        assert total(after, name, error="InvalidRegex") - total(before, name, error="InvalidRegex") == REFUSALS
        assert total(after, name) - total(before, name) == REFUSALS
        assert total(after, "infernix_requests_total") == total(before, "infernix_requests_total")


SLOW = {"model": "tiny", "prompt": "q", "max_tokens": ENDLESS, "stream": True}
SLOW |= {"structured_outputs": {"regex": "[a-z]{20000,}"}}


def test_the_end_of_one_api_server_ends_all_and_leaves_nothing(server):
    """This test ends the server. vLLM does not go on without one of them, and the streams of the others are cut."""
    servers = {name: int(pid) for name, pid in re.findall(r"\((ApiServer_\d) pid=(\d+)\)", server.log_text())}
    processes = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]

    def read(begun):
        """Return how the stream broke, if it did (the connection, or a last event that says so), and its reasons."""
        reasons = []
        try:
            with httpx.stream("POST", f"{server.url}/v1/completions", json=SLOW, timeout=120, trust_env=False) as got:
                for line in got.iter_lines():
                    if line.startswith("data: {"):
                        event = json.loads(line[6:])
                        if "error" in event:
                            return event["error"], set(reasons)
                        begun.append(line)
                        reasons += [choice["finish_reason"] for choice in event["choices"]]
        except httpx.HTTPError as error:
            return error, set(reasons)
        return None, set(reasons)

    begun = [[] for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:
        streams = [threads.submit(read, each) for each in begun]
        while not all(begun):
            assert not any(stream.done() for stream in streams)
            time.sleep(0.01)
        os.kill(servers["ApiServer_1"], signal.SIGKILL)
        for stream in streams:
            error, reasons = stream.result()
            assert error is not None, "a stream that was cut ended as if it were whole"
            assert reasons == {None}
    assert server.wait(120) != 0
    _, left = psutil.wait_procs(processes, timeout=60)
    assert left == []
