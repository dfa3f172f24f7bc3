"""What the engine core runs in place of vLLM's ``StructuredOutputManager``."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt
from vllm.v1.structured_output import StructuredOutputManager

from infernix_plugin import settings
from infernix_plugin.errors import ConflictingConstraints, ConstraintError, InfernixError, for_log, printable
from infernix_plugin.framing.thinking_budget import ThinkingBudget, budget_of
from infernix_plugin.grammar import interest
from infernix_plugin.matching.cache import CacheStats
from infernix_plugin.matching.domain import bitset
from infernix_plugin.seams.versions import installed_release, installed_version
from infernix_plugin.spec_decode import replacement
from infernix_plugin.spec_decode.grammar_drafts import GrammarDrafter, RequestDrafter
from infernix_plugin.spec_decode.proposal import mark_one_hot
from infernix_plugin.structured_output.aborted import AbortedRequests
from infernix_plugin.structured_output.compilers import COMPILING_THREADS, RequestCompiler, compiler_for, written_before
from infernix_plugin.structured_output.constrained import EVERYTHING, ConstrainedRequest
from infernix_plugin.structured_output.failures import StepFailures
from infernix_plugin.structured_output.record import EngineFigures, Record, blank_record
from infernix_plugin.structured_output.translation import Asked, asked_of, is_delegated, kind_of, observed_kind

logger = logging.getLogger(__name__)

FIXED_STRIDE_SINCE = (0, 33)
"""From here on every request owns k + 1 mask rows, however many drafts it has; before, rows are compact."""


class InfernixManager(StructuredOutputManager):  # type: ignore[misc]
    """Compiles, masks and commits through sessions; the constraint is on from the first output token.

    Drafts are never dropped: a mask row belongs to the drafts as they were proposed, and the sampler's own rejection of
    an illegal one is what keeps the output distribution exact.
    """

    def __init__(self, vllm_config: Any) -> None:
        super().__init__(vllm_config)
        self.reasoner_cls = None
        self._settings = settings.adopt(vllm_config.additional_config)
        self._compiler: RequestCompiler | None = None
        self._fixed_stride = installed_release() >= FIXED_STRIDE_SINCE
        self._max_drafts = int(vllm_config.num_speculative_tokens)
        missing = replacement.obstacle(vllm_config)
        if missing is not None:
            replacement.tell(self._settings, missing, speculates=self._max_drafts > 0)
        self._grammar_drafts = self._settings.grammar_drafts and missing is None
        self._grammar_drafter: GrammarDrafter | None = None
        self._words = (int(vllm_config.model_config.get_vocab_size()) + 31) // 32
        self._rows: npt.NDArray[np.int32] = np.empty((0, self._words), dtype=np.int32)
        self._readers = ThreadPoolExecutor(max_workers=1, thread_name_prefix="infernix-reading")
        self._compiling = ThreadPoolExecutor(max_workers=COMPILING_THREADS, thread_name_prefix="infernix-compiling")
        self._preparing: dict[str, Future[ConstrainedRequest]] = {}
        self.failures = StepFailures()
        self.aborted = AbortedRequests()
        logger.info(
            "infernix-plugin is active in the engine core (vLLM %s, %d draft tokens)",
            installed_version(),
            self._max_drafts,
        )
        if hasattr(self, "tokenizer") and vllm_config.model_config.runner_type == "generate":
            self._request_compiler().start_warming()

    def grammar_init(self, request: Any) -> None:
        """Start compiling the request's constraint. Runs on the engine core's input thread and returns at once."""
        structured = request.structured_output_request
        if structured is None:
            return
        budget = request.sampling_params.thinking_token_budget
        if budget is not None:  # the masks keep it, not vLLM's sampler
            request.sampling_params = copy(request.sampling_params)  # which several outputs of a request may share
            request.sampling_params.thinking_token_budget = None
        done: Future[ConstrainedRequest] = Future()
        self._preparing[request.request_id] = done
        done.add_done_callback(lambda _: self._preparing.pop(request.request_id, None))
        structured.grammar = done
        if self._use_async_grammar_compilation and hasattr(self, "executor"):
            self._readers.submit(self._begin, done, request, budget)
        else:
            self._settle(done, request, budget)

    def give_up(self, request: Any) -> None:
        """End the compile of a request that has ended, unless another one waits for the same."""
        done = self._preparing.get(request.request_id)
        if done is not None:
            done.cancel()

    def clear_backend(self) -> None:
        """End the threads."""
        self._readers.shutdown(wait=True, cancel_futures=True)
        self._compiling.shutdown(wait=False, cancel_futures=True)
        super().clear_backend()

    def validate_tokens(self, request: Any, spec_tokens: list[int]) -> list[int]:
        """Keep every draft, legal or not, but put what the grammar forces before them, if that is switched on."""
        if not self._grammar_drafts or not request.use_structured_output:
            return spec_tokens
        constrained: ConstrainedRequest = request.structured_output_request.grammar
        try:
            return constrained.draft(spec_tokens, self._max_drafts)
        except Exception as error:  # a draft is only a guess: the request goes on with the drafter's
            logger.error("Request %s has no drafts of the grammar: %s", printable(request.request_id), for_log(error))
            return spec_tokens

    def mark_grammar_drafts(self, requests: dict[str, Any], scheduler_output: Any) -> None:
        """Mark the drafts of a grammar that are still scheduled: not trimmed, nor of a preempted request."""
        if not self._grammar_drafts:
            return
        for name, drafts in scheduler_output.scheduled_spec_decode_tokens.items():
            request = requests[name]
            if request.use_structured_output:
                positions = request.structured_output_request.grammar.drafted(drafts)
                if positions:
                    mark_one_hot(scheduler_output, name, positions)

    def grammar_bitmask(
        self,
        requests: dict[str, Any],
        structured_output_request_ids: list[str],
        scheduled_spec_decode_tokens: dict[str, list[int]],
    ) -> npt.NDArray[np.int32] | None:
        """Return mask rows, int32[rows, words], in the order and layout that this vLLM's workers read."""
        if not structured_output_request_ids:
            return None
        drafts_of = [scheduled_spec_decode_tokens.get(name) or [] for name in structured_output_request_ids]
        fixed = self._max_drafts + 1 if self._fixed_stride else None
        strides = [fixed or len(drafts) + 1 for drafts in drafts_of]
        rows = self._buffer(sum(strides))
        start = 0
        for name, drafts, stride in zip(structured_output_request_ids, drafts_of, strides, strict=True):
            own = rows[start : start + stride]
            start += stride
            self._fill(requests[name], drafts, own)
        return rows

    def accept_tokens(self, request: Any, new_token_ids: list[int]) -> bool:
        """Commit what was sampled. False ends this request alone, and then none of the tokens is published."""
        if not new_token_ids:
            return True
        failure: BaseException | None = self.failures.refuse(request, len(new_token_ids))
        if request.use_structured_output:
            constrained: ConstrainedRequest = request.structured_output_request.grammar
            if failure is not None:
                constrained.failure = failure
            elif not constrained.accept(new_token_ids):
                failure = constrained.failure
        if failure is None:
            return True
        logger.warning("Request %s ends: %s", printable(request.request_id), for_log(failure))
        new_token_ids.clear()
        return False

    def record_of(self, request: Any) -> Record:
        """Return the observation of a constrained request as it stands, ready or not."""
        structured = request.structured_output_request
        grammar = structured.grammar
        if isinstance(grammar, ConstrainedRequest):
            return grammar.record()
        return blank_record(observed_kind(structured.params), grammar if isinstance(grammar, Exception) else None)

    def figures(self) -> EngineFigures:
        """Return what this engine core holds."""
        stats = self._compiler.compiler.stats() if self._compiler is not None else CacheStats()
        return EngineFigures(
            index=int(self.vllm_config.parallel_config.data_parallel_index),
            cache_bytes=stats.bytes,
            cache_entries=stats.entries,
            compiling=stats.building,
        )

    def _fill(self, request: Any, drafts: list[int], rows: npt.NDArray[np.int32]) -> None:
        constrained: ConstrainedRequest = request.structured_output_request.grammar
        used = len(drafts) + 1
        rows[used:] = EVERYTHING
        try:
            constrained.fill(drafts, rows[:used])
        except Exception as error:
            # One request's failure must not take the engine down; accept_tokens ends this one.
            logger.error("The mask of request %s failed: %s", printable(request.request_id), for_log(error))
            constrained.failure = error
            rows[:used] = EVERYTHING

    def _buffer(self, rows: int) -> npt.NDArray[np.int32]:
        if len(self._rows) < rows:
            most = int(self.vllm_config.scheduler_config.max_num_seqs) * (self._max_drafts + 1)
            self._rows = np.empty((max(rows, most), self._words), dtype=np.int32)
        return self._rows[:rows]

    def _begin(self, done: Future[ConstrainedRequest], request: Any, thinking_tokens: int | None) -> None:
        """Go on here with what is in the cache; a compile waits for its turn among compiles."""
        with suppress(Exception):  # what is wrong is said by what comes next
            if not self._is_known(request):
                self._compiling.submit(self._settle, done, request, thinking_tokens)
                return
        self._settle(done, request, thinking_tokens)

    def _is_known(self, request: Any) -> bool:
        params = request.sampling_params.structured_outputs
        prompt = request.prompt_token_ids
        return self._request_compiler().holds(asked_of(params), prompt, delegated=is_delegated(params))

    def _settle(self, done: Future[ConstrainedRequest], request: Any, thinking_tokens: int | None) -> None:
        failure: Exception | None = None
        try:
            with interest.wanted_while(lambda: not done.cancelled()):
                constrained = self._prepare(request, thinking_tokens)
        except Exception as error:
            failure = error
        if done.set_running_or_notify_cancel():
            if failure is not None:
                done.set_exception(failure)
            else:
                done.set_result(constrained)

    def _prepare(self, request: Any, thinking_tokens: int | None) -> ConstrainedRequest:
        try:
            params = request.sampling_params.structured_outputs
            asked = asked_of(params)
            if request.prompt_token_ids is None:
                raise ConflictingConstraints("A constraint needs a prompt of tokens; prompt embeddings have none.")
            compiler = self._request_compiler()
            delegated = is_delegated(params)
            prepared = compiler.prepare(asked, request.prompt_token_ids, delegated=delegated)
            return ConstrainedRequest(
                prepared,
                kind=kind_of(asked),
                session=compiler.session(asked, prepared),
                allowed=self._allowed(compiler, request.sampling_params.all_stop_token_ids),
                drafter=self._drafter(compiler, written_before(asked)) if self._grammar_drafts else None,
                budget=self._budget(compiler, asked, request.prompt_token_ids, thinking_tokens),
                branch=compiler.branch(asked, request.prompt_token_ids, delegated=delegated),
            )
        except ConstraintError as error:
            logger.warning("Request %s is refused: %s", printable(request.request_id), for_log(error))
            raise
        except interest.CompileAbandoned:
            raise
        except Exception as error:
            logger.error("The constraint of request %s failed: %s", printable(request.request_id), for_log(error))
            raise

    def _drafter(self, compiler: RequestCompiler, before: str) -> RequestDrafter:
        if self._grammar_drafter is None:
            self._grammar_drafter = GrammarDrafter(compiler.domain, self.tokenizer)
        return RequestDrafter(self._grammar_drafter, before.encode())

    def _budget(
        self, compiler: RequestCompiler, asked: Asked, prompt: list[int], tokens: int | None
    ) -> ThinkingBudget | None:
        reasoning = self.vllm_config.reasoning_config
        closing = (reasoning.reasoning_end_token_ids or ()) if reasoning is not None else ()
        return budget_of(tokens, prompt, compiler.framing(asked, prompt), compiler.domain, closing)

    def _request_compiler(self) -> RequestCompiler:
        if self._compiler is None:
            if not hasattr(self, "tokenizer"):
                raise InfernixError("A constraint needs the tokenizer; the engine runs with skip_tokenizer_init.")
            self._compiler = compiler_for(self.vllm_config.model_config, self.tokenizer, self._settings)
        return self._compiler

    def _allowed(self, compiler: RequestCompiler, stops: set[int]) -> npt.NDArray[np.int32] | None:
        withheld = [token for token in compiler.domain.stop_ids if token not in stops]
        return np.invert(bitset(withheld, compiler.domain.vocab_size)) if withheld else None


def substitute(original: type[StructuredOutputManager]) -> type[InfernixManager]:
    """Return the manager that replaces vLLM's."""
    return InfernixManager
