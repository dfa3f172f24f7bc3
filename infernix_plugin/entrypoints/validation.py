"""Judge a constraint in the API process, before a stream starts, by compiling it.

The compiled grammar stays in this process's cache, so equal constraints are judged once. The engine core compiles for
itself: compiled grammars cannot travel between processes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any

from vllm.exceptions import VLLMError

from infernix_plugin import settings
from infernix_plugin.entrypoints.clients import answered
from infernix_plugin.entrypoints.continuation import continued, is_continuation, lay_out_reasoning
from infernix_plugin.entrypoints.declared import declared
from infernix_plugin.entrypoints.guided import named_as_given, read_guided
from infernix_plugin.entrypoints.options import (
    check_display,
    check_extra_args,
    check_request,
    check_sampling,
    constraint_sources,
    keep_penalties_of_the_model_out,
)
from infernix_plugin.entrypoints.origin import Origin, origin_of
from infernix_plugin.entrypoints.raw import is_raw, over_all_text
from infernix_plugin.entrypoints.refusals import failure, refusal
from infernix_plugin.entrypoints.tools.allowed import allowed_names
from infernix_plugin.entrypoints.tools.joining import join_tools
from infernix_plugin.entrypoints.tools.output_parser import OutputParser
from infernix_plugin.entrypoints.tools.places import located
from infernix_plugin.entrypoints.tools.request import has_grammar
from infernix_plugin.errors import (
    ConflictingConstraints,
    ConstraintError,
    InfernixError,
    InvalidGrammar,
    InvalidSchema,
    for_log,
)
from infernix_plugin.grammar import interest
from infernix_plugin.matching.cache import Outcome
from infernix_plugin.observation.metrics import metrics
from infernix_plugin.structured_output.compilers import COMPILING_THREADS, RequestCompiler, compiler_for
from infernix_plugin.structured_output.framed_output import FramedOutput
from infernix_plugin.structured_output.structural_tag import StructuralTag
from infernix_plugin.structured_output.tag_fault import fault_behind
from infernix_plugin.structured_output.translation import BACKEND, DELEGATED, Asked, asked_of, field_of

logger = logging.getLogger(__name__)

_REMEMBERED = 4096
_ALLOWED_ELSEWHERE = "tool_choice of the type allowed_tools is only enforced for models with Qwen's form of calls."
_CUSTOM_ELSEWHERE = "The grammar of a custom tool is only enforced for models with Qwen's form of calls."

_threads = ThreadPoolExecutor(max_workers=COMPILING_THREADS, thread_name_prefix="infernix-validation")
_readers = ThreadPoolExecutor(max_workers=2, thread_name_prefix="infernix-reading")
"""For what is in the cache: it may not wait in line behind compiles that take seconds."""
_accepted: OrderedDict[tuple[RequestCompiler, Asked], None] = OrderedDict()
_accepted_lock = Lock()


class _Reading:
    """Who takes this process's outputs apart."""

    delegated = False


def delegate_reading() -> None:
    """Note that one of vLLM's parsers takes the outputs of this process apart."""
    _Reading.delegated = True


def refuse_conflicts(request: Any) -> str | None:
    """Refuse two constraints at once, removed fields and reserved names. Cheap; called for every request.

    Returns:
        The field that holds the content constraint. The tools may be joined to it later, in another field.

    Raises:
        VLLMValidationError: becomes an HTTP 400.
    """
    guided: str | None = None
    try:
        guided = read_guided(request)
        check_request(request)
        field = guided or next(iter(constraint_sources(request)), None)
        if field is not None:
            check_display(request)
    except ConstraintError as error:
        raise refusal(named_as_given(error, guided), "") from error
    if field is not None:
        keep_penalties_of_the_model_out(request)
    return field


def start_warming(model_config: Any, tokenizer: Any) -> None:
    """Index the model's vocabulary in the background, before the first request."""
    if tokenizer is not None:
        compiler_for(model_config, tokenizer, settings.current()).start_warming()


async def make_ready(renderer: Any, request: Any) -> None:
    """Before a prompt is rendered: make one constraint of the request's content and tools.

    Only if our parser reads the outputs of the ``renderer`` (vLLM's ``OnlineRenderer``).

    Raises:
        VLLMValidationError: they contradict each other; becomes an HTTP 400.
    """
    if renderer.parser is not OutputParser:
        if allowed_names(request) is not None:
            raise refusal(ConflictingConstraints(_ALLOWED_ELSEWHERE, location="tool_choice"), "")
        for index, tool in enumerate(declared(request, "tools") or ()):
            if has_grammar(tool):
                raise refusal(ConflictingConstraints(_CUSTOM_ELSEWHERE, location=f"tools[{index}].format"), "")
        return
    lay_out_reasoning(request)
    own = settings.current()
    compiler = compiler_for(renderer.model_config, renderer.renderer.tokenizer, own)
    if not compiler.is_ready:  # the parser of the output needs the domain too, and may not block the event loop
        await asyncio.get_running_loop().run_in_executor(_threads, lambda: compiler.domain)
    if declared(request, "tools") and origin_of(request) is not Origin.COUNT_TOKENS:
        join_tools(request, compiler.domain, own)


async def validate_request(
    model_config: Any, tokenizer: Any, request: Any, engine_inputs: Sequence[Any], field: str | None
) -> None:
    """Compile the constraint of a rendered request, for the output phase that each of its prompts leaves open.

    Args:
        model_config: vLLM's ``ModelConfig``.
        tokenizer: the model's tokenizer.
        request: a chat, completion or Responses request after its parser adjusted it.
        engine_inputs: the rendered prompts.
        field: from :func:`refuse_conflicts`.

    Raises:
        VLLMValidationError: becomes an HTTP 400.
    """
    sources = constraint_sources(request)
    origin = origin_of(request)
    if not sources or origin is Origin.COUNT_TOKENS:
        return
    field = field or sources[0]
    try:
        params = _extract(request, field)
        if params is None:
            return
        if field == "structured_outputs" and not params.structural_tag:
            field = f"{field}.{field_of(params)}"
        compiler = compiler_for(model_config, tokenizer, settings.current())
        prompts = [_prompt_of(engine_input) for engine_input in engine_inputs]
        judged = (compiler, params, request, prompts)
        if not await answered(_readers, model_config, partial(_judge_if_known, *judged)):
            await answered(_threads, model_config, partial(_judge, *judged))
    except InfernixError as error:
        place = located(error, request)
        if origin is Origin.MESSAGES and field == "response_format":
            field = "output_config.format"
        raise _response(place, field if place is error else "") from error


async def validate_options(model_config: Any, tokenizer: Any, sampling_params: Any) -> None:
    """Do what :func:`validate_sampling_params` does without blocking the event loop.

    Raises:
        VLLMValidationError: becomes an HTTP 400.
    """
    if sampling_params.structured_outputs is not None and tokenizer is not None:
        judge = partial(validate_sampling_params, model_config, tokenizer, sampling_params)
        await answered(_threads, model_config, judge)


def validate_sampling_params(model_config: Any, tokenizer: Any, sampling_params: Any) -> None:
    """Judge ``SamplingParams`` that did not come through a rendered request: offline use, batches, other front ends.

    Raises:
        VLLMValidationError: as for a request.
    """
    params = sampling_params.structured_outputs
    field = "" if params is None else f"structured_outputs.{field_of(params)}"
    try:
        check_extra_args(sampling_params)
        if params is None:
            return
        compiler = compiler_for(model_config, tokenizer, settings.current())
        _judge(compiler, params, sampling_params, [])
    except InfernixError as error:
        raise _response(error, field) from error
    params._backend = DELEGATED if _Reading.delegated else BACKEND
    params._backend_was_auto = True


def _judge_if_known(compiler: RequestCompiler, params: Any, options: Any, prompts: list[list[int]]) -> bool:
    if is_continuation(options):
        return False
    asked = _asked_of(params)
    if not all(compiler.holds(asked, prompt) for prompt in prompts):
        return False
    _judge(compiler, params, options, prompts)
    return True


def _judge(compiler: RequestCompiler, params: Any, options: Any, prompts: list[list[int]]) -> None:
    asked = _asked_of(params)
    if not isinstance(asked, StructuralTag):
        check_sampling(options, compiler.domain.stop_ids)
    if not prompts:
        with _accepted_lock:
            if (compiler, asked) in _accepted:
                return
    if is_raw(options):
        asked = over_all_text(options, asked)
    elif prompts and is_continuation(options):
        asked = continued(options, asked, prompts[0], compiler.domain)
    with metrics().judging(), _explained(params):
        for prompt in prompts or [[]]:
            _compile(compiler, asked, prompt)
    with _accepted_lock:
        _accepted[compiler, asked] = None
        _accepted.move_to_end((compiler, asked))
        while len(_accepted) > _REMEMBERED:
            _accepted.popitem(last=False)


def _asked_of(params: Any) -> Asked:
    with _explained(params):
        return asked_of(params)


@contextmanager
def _explained(params: Any) -> Iterator[None]:
    """Say where a client's structural tag is wrong."""
    try:
        yield
    except InvalidGrammar as error:
        if params.structural_tag is None or params._backend is not None:
            raise
        fault = fault_behind(error, params.structural_tag)
        if fault is None:
            raise
        raise fault from error


def _compile(compiler: RequestCompiler, asked: Asked, prompt: list[int]) -> None:
    try:
        prepared = compiler.prepare(asked, prompt)
        metrics().count_judged(prepared.outcome, prepared.seconds, compiler.compiler.stats())
        if isinstance(asked, FramedOutput) and asked.prefix:
            compiler.session(asked, prepared)
    except (ConstraintError, interest.CompileAbandoned):
        raise
    except Exception as error:
        logger.error("A constraint could not be compiled: %s", for_log(error))
        raise InfernixError("The constraint could not be compiled; see the server log.") from None
    if prepared.compiled.remarks and prepared.outcome is Outcome.BUILT:
        places = ", ".join(remark.location for remark in prepared.compiled.remarks)
        logger.warning("A grammar is enforced, but its rules at %s add nothing; infernix check says why", places)


def _response(error: InfernixError, field: str) -> VLLMError:
    return refusal(error, field) if isinstance(error, ConstraintError) else failure(error)


def _extract(request: Any, field: str) -> Any:
    if field == "response_format" and request.response_format and request.response_format.type == "json_schema":
        holder = request.response_format.json_schema
        if holder is None or holder.json_schema is None:
            place = "output_config.format" if origin_of(request) is Origin.MESSAGES else "response_format.json_schema"
            raise InvalidSchema("The schema is missing.", location=f"{place}.schema")
    return request.extract_structured_outputs()


def _prompt_of(engine_input: Any) -> list[int]:
    tokens = engine_input.get("prompt_token_ids")
    if tokens is None:
        raise ConflictingConstraints("A constraint needs a prompt of tokens; prompt embeddings have none.")
    return list(tokens)
