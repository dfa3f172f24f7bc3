"""One compiler for each model and process, shared by validation and by the engine core when they are one process."""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import Any

from infernix_plugin.errors import ConstraintError, InvalidContinuation, excerpt
from infernix_plugin.framing.branch import BranchObserver
from infernix_plugin.framing.continuation import as_tokens
from infernix_plugin.framing.phases import CONTENT, Framing, prompt_framing, read_by_parser
from infernix_plugin.framing.tools.contract import ToolContract
from infernix_plugin.grammar.constraint import OutputConstraint
from infernix_plugin.isolation.nursery import Setup
from infernix_plugin.isolation.planner import IsolatedPlanner
from infernix_plugin.isolation.threads import ThreadedPlanner
from infernix_plugin.matching import ConstraintCompiler, Session, TokenDomain
from infernix_plugin.matching.compiler import Preparation
from infernix_plugin.matching.engines.select import Engines
from infernix_plugin.matching.plan import Planner
from infernix_plugin.matching.warming import warm
from infernix_plugin.settings import Settings
from infernix_plugin.structured_output.framed_output import FramedOutput
from infernix_plugin.structured_output.structural_tag import StructuralTag
from infernix_plugin.structured_output.translation import Asked

logger = logging.getLogger(__name__)

COMPILING_THREADS = 64
"""Threads of a process that wait for constraints to be compiled: with fewer, ordinary ones would wait for a thread."""

_lock = threading.Lock()
_compilers: dict[tuple[Any, ...], RequestCompiler] = {}


def written_before(asked: Asked) -> str:
    """Return the content that the prompt ends with."""
    return asked.prefix if isinstance(asked, FramedOutput) else ""


class RequestCompiler:
    """Compiles what a request asks for, in the output phase that its prompt leaves open.

    The token domain is read on first use, or before by :meth:`start_warming`. Only then, in a server or an engine core,
    are compiles isolated: a program that compiles its own constraints has no use for further processes.
    """

    def __init__(self, model_config: Any, tokenizer: Any, settings: Settings) -> None:
        self._model_config = model_config
        self._tokenizer = tokenizer
        self._settings = settings
        self._lock = threading.Lock()
        self._compiler: ConstraintCompiler | None = None
        self._warming: threading.Thread | None = None

    @property
    def compiler(self) -> ConstraintCompiler:
        """The compiler over the model's token domain. Building it takes seconds for a large vocabulary."""
        with self._lock:
            if self._compiler is None:
                compiler = ConstraintCompiler(
                    domain_of(self._model_config, self._tokenizer),
                    options=self._settings.grammar_options(),
                    cache_bytes=self._settings.cache_bytes,
                    max_cold_compiles=self._settings.max_cold_compiles,
                    max_compile_seconds=self._settings.max_compile_seconds,
                )
                if self._warming is not None:
                    isolates = self._settings.isolate_compiles
                    make = partial(self._isolated, compiler.domain) if isolates else self._threaded
                    compiler.plan_with(make, COMPILING_THREADS)
                self._compiler = compiler
            return self._compiler

    def _isolated(self, domain: TokenDomain, engines: Engines, local: Planner) -> Planner:
        own = self._settings
        setup = Setup(own.grammar_options(), own.cache_bytes, own.max_compile_seconds, own.max_compile_bytes)
        return IsolatedPlanner(setup, domain, engines, local, own.max_cold_compiles)

    def _threaded(self, engines: Engines, local: Planner) -> Planner:
        return ThreadedPlanner(local, self._settings.max_cold_compiles)

    @property
    def is_ready(self) -> bool:
        """Whether the token domain is read, so that :attr:`domain` costs nothing."""
        return self._compiler is not None

    def start_warming(self) -> threading.Thread:
        """Read the vocabulary and index it in the background, so that no request waits for it. Once is enough.

        A process that ends meanwhile waits for the thread, which then stops early: a daemon would be ended inside the
        native code of an engine, and the whole process with it, by a segmentation fault.
        """
        with self._lock:
            if self._warming is None:
                self._warming = threading.Thread(target=self._warm, name="infernix-warming", daemon=False)
                self._warming.start()
            return self._warming

    def _warm(self) -> None:
        try:
            warm(self.compiler)
            logger.info("The vocabulary of %d tokens is indexed for constraints", self.domain.vocab_size)
        except Exception:  # the first request will say what is wrong
            logger.debug("The vocabulary could not be indexed ahead of the first request", exc_info=True)

    @property
    def domain(self) -> TokenDomain:
        """The model's vocabulary."""
        return self.compiler.domain

    def prepare(self, asked: Asked, prompt_token_ids: list[int], *, delegated: bool = False) -> Preparation:
        """Compile, or fetch from the cache, the grammar of everything that may follow the prompt.

        Args:
            asked: the constraint.
            prompt_token_ids: they say in which phase the output begins.
            delegated: whether one of vLLM's parsers will take the output apart, which knows no separator.

        Raises:
            ConstraintError: the constraint cannot be enforced.
        """
        compiler = self.compiler
        framing = self.framing(asked, prompt_token_ids, delegated=delegated)
        if isinstance(asked, StructuralTag):
            try:
                return compiler.prepare_structural_tag(asked.after(framing).text)
            except ConstraintError as error:
                error.location = asked.place(error.location, framing)
                raise
        match asked:
            case FramedOutput(ToolContract() as contract, content):
                return compiler.prepare_tools(contract, content, framing=framing)
            case FramedOutput(None, OutputConstraint() as content) | (OutputConstraint() as content):
                return compiler.prepare(content, framing=framing)
        raise TypeError(f"{asked!r} asks for nothing")

    def holds(self, asked: Asked, prompt_token_ids: list[int], *, delegated: bool = False) -> bool:
        """Whether :meth:`prepare` and :meth:`session` are quick: nothing is to be built, and no text was written."""
        if not self.is_ready or written_before(asked):
            return False
        framing = self.framing(asked, prompt_token_ids, delegated=delegated)
        match asked:
            case StructuralTag():
                return self.compiler.holds_structural_tag(asked.after(framing).text)
            case FramedOutput(ToolContract() as contract, content):
                return self.compiler.holds_tools(contract, content, framing=framing)
            case FramedOutput(None, OutputConstraint() as content) | (OutputConstraint() as content):
                return self.compiler.holds(content, framing=framing)
        return False

    def branch(self, asked: Asked, prompt_token_ids: list[int], *, delegated: bool = False) -> BranchObserver | None:
        """Return what will see whether the output becomes content or calls; ``None`` for a structural tag."""
        if isinstance(asked, StructuralTag):
            return None
        return BranchObserver(
            self.framing(asked, prompt_token_ids, delegated=delegated),
            self.domain,
            calls=isinstance(asked, FramedOutput) and asked.has_calls,
            prefix=written_before(asked),
        )

    def framing(self, asked: Asked, prompt_token_ids: list[int], *, delegated: bool = False) -> Framing:
        """Return the phases that an output goes through; see :meth:`prepare`."""
        if isinstance(asked, FramedOutput | StructuralTag) and asked.raw:
            return CONTENT
        framing = prompt_framing(prompt_token_ids, self.domain)
        return read_by_parser(framing, self.domain) if delegated else framing

    def session(self, asked: Asked, prepared: Preparation) -> Session:
        """Return a new session of what :meth:`prepare` compiled, behind what is already written.

        Raises:
            InvalidContinuation: that is not how the constraint can begin.
        """
        prefix = written_before(asked)
        if not prefix or (isinstance(asked, FramedOutput) and not asked.has_calls):
            return prepared.compiled.session(prefix.encode())
        session = prepared.compiled.session()
        offset = 0
        for token in as_tokens(prefix, self.domain):
            if not session.accept(token):
                raise InvalidContinuation(
                    "the constraint does not allow the already written output to go on with "
                    + excerpt(prefix.encode()[offset:].decode(errors="backslashreplace")),
                    location=f"offset {offset}",
                )
            offset += len(self.domain.token_bytes(token))
        return session


def domain_of(model_config: Any, tokenizer: Any) -> TokenDomain:
    """Return the token domain with the width of the worker's logits and every stop id that vLLM may know."""
    eos = (model_config.try_get_generation_config() or {}).get("eos_token_id")
    stops = [] if eos is None else [eos] if isinstance(eos, int) else eos
    return TokenDomain.from_pretrained(tokenizer, vocab_size=model_config.get_vocab_size(), extra_stop_ids=stops)


def compiler_for(model_config: Any, tokenizer: Any, settings: Settings) -> RequestCompiler:
    """Return this process's compiler for a model."""
    key = (
        model_config.tokenizer,
        model_config.tokenizer_revision,
        str(model_config.tokenizer_mode),
        model_config.get_vocab_size(),
        settings,
    )
    with _lock:
        if key not in _compilers:
            _compilers[key] = RequestCompiler(model_config, tokenizer, settings)
        return _compilers[key]
