"""A real vLLM engine in a process of its own, so that the plugin never touches the test process.

The processes are copies of one that has imported vLLM and done nothing else, as a program has before it makes an
``LLM``: importing it costs more than starting a tiny engine.
"""

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing import forkserver
from typing import Any

SMALL = {
    "max_model_len": 1024,
    "max_num_seqs": 16,
    "enforce_eager": True,
    "enable_prefix_caching": False,
    "disable_log_stats": True,
}


ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}

_COPIES = multiprocessing.get_context("forkserver")
_COPIES.set_forkserver_preload(["vllm.entrypoints.llm"])


class EngineProcess:
    """Answers batches of requests. Close it."""

    def __init__(
        self,
        model: str,
        *,
        environment: dict[str, str] | None = None,
        prepare: Callable[[], None] | None = None,
        **arguments: Any,
    ) -> None:
        """Start; ``prepare``, a function of a module, is called in the new process before vLLM is imported."""
        environment = {**os.environ, **ENVIRONMENT, **(environment or {})}
        if prepare is None:
            _start_the_original()
        context = _COPIES if prepare is None else multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        arguments = {**SMALL, **arguments}
        self._process = context.Process(target=_serve, args=(theirs, environment, prepare, model, arguments))
        self._process.start()
        theirs.close()
        self._answer()

    def generate(self, requests: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        """Run the requests as one batch; return the completions of each."""
        self._pipe.send(("generate", requests))
        return self._answer()

    def counter(self, name: str) -> int:
        """Return one of vLLM's own counters; the engine must have been started with ``disable_log_stats=False``."""
        self._pipe.send(("counter", name))
        return self._answer()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function of a test module in the engine's process, with vLLM's ``LLM`` as its first argument."""
        self._pipe.send(("call", (function, arguments)))
        return self._answer()

    def close(self) -> None:
        """End the engine."""
        self._pipe.close()
        self._process.join(30)
        if self._process.is_alive():
            self._process.kill()

    def _answer(self) -> Any:
        ok, value = self._pipe.recv()
        if not ok:
            raise RuntimeError(value)
        return value


def _start_the_original() -> None:
    """Start the process that the others are copies of, if it is not there."""
    before = dict(os.environ)
    os.environ.update(ENVIRONMENT)  # some of it is read while vLLM is imported
    try:
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)


def _serve(
    pipe: Any, environment: dict[str, str], prepare: Callable[[], None] | None, model: str, arguments: dict[str, Any]
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    if prepare is not None:
        prepare()
    from vllm import LLM

    try:
        engine = LLM(model, **arguments)
        pipe.send((True, None))
    except BaseException as error:
        pipe.send((False, f"{type(error).__name__}: {error}"))
        raise
    while True:
        try:
            command, payload = pipe.recv()
        except EOFError:
            engine.llm_engine.engine_core.shutdown()
            return
        try:
            pipe.send((True, _COMMANDS[command](engine, payload)))
        except Exception as error:
            pipe.send((False, f"{type(error).__name__}: {error}"))


def compile_at_once(engine: Any) -> None:
    """Compile constraints while requests are added, not beside the engine: those of one batch then join one step.

    Of an engine core in the front end's process.
    """
    engine.llm_engine.engine_core.engine_core.structured_output_manager._use_async_grammar_compilation = False


def generate(engine: Any, requests: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    prompts, params = [], []
    for request in requests:
        options = dict(request["options"])
        if "structured" in request:
            options["structured_outputs"] = StructuredOutputsParams(**request["structured"])
        prompts.append(request["prompt"])
        params.append(SamplingParams(**options))
    return [
        [
            {
                "text": completion.text,
                "token_ids": list(completion.token_ids),
                "finish_reason": completion.finish_reason,
                "constraint": getattr(completion, "constraint", "absent"),
                "logprobs": [
                    {token: entry.logprob for token, entry in row.items()} for row in completion.logprobs or ()
                ],
            }
            for completion in output.outputs
        ]
        for output in engine.generate(prompts, params, use_tqdm=False)
    ]


def _counter(engine: Any, name: str) -> int:
    return sum(metric.value for metric in engine.get_metrics() if metric.name == name)


def _call(engine: Any, payload: tuple[Callable[..., Any], tuple[Any, ...]]) -> Any:
    function, arguments = payload
    return function(engine, *arguments)


_COMMANDS = {"generate": generate, "counter": _counter, "call": _call}
