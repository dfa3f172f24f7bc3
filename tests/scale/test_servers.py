"""Two engines behind two API servers: every process has the plugin, and any of them may get any request."""

import re
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest
from openai import OpenAI

from infernix_plugin.entrypoints.demo.server import serve
from tests.engine.engine_process import ENVIRONMENT
from tests.oracles.languages import LANGUAGES

pytestmark = pytest.mark.server

REQUESTS = 40
ARGUMENTS = [
    *("--served-model-name=tiny", "--max-model-len=2048", "--max-num-seqs=16", "--enforce-eager"),
    *("--data-parallel-size=2", "--api-server-count=2"),
    *("--speculative-config", '{"method": "mtp", "num_speculative_tokens": 3}'),
]


@pytest.fixture(scope="module")
def server(tiny_model, tmp_path_factory):
    log = tmp_path_factory.mktemp("scale") / "server.log"
    with pytest.MonkeyPatch.context() as environment:
        for name, value in ENVIRONMENT.items():
            environment.setenv(name, value)
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

    with ThreadPoolExecutor(8) as threads:
        records = list(threads.map(one, range(REQUESTS)))
    assert all(record["mask_positions"] > 0 for record in records)
    metrics = httpx.get(f"{server.url}/metrics", trust_env=False).text
    for engine in "01":
        done = re.findall(rf'^vllm:request_success_total{{engine="{engine}",.*}} (\S+)$', metrics, re.MULTILINE)
        assert sum(map(float, done)) > 0, f"engine {engine} was never asked"


def test_every_api_server_refuses(server):
    for _ in range(10):
        with pytest.raises(openai.BadRequestError, match="regex"):
            ask(server, extra_body={"structured_outputs": {"regex": "[a-"}})
