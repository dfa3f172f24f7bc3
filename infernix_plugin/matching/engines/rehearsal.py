"""Compile and walk a grammar with a small part of the vocabulary first, to know what the whole will cost.

xgrammar's native code cannot be interrupted, and what it costs is not seen from the text of a grammar: a row of classes
takes long to compile, a very ambiguous line of rules takes seconds for each mask. Both grow with the vocabulary, so a
rehearsal with 256 single bytes, and then with larger and larger samples of the tokens, tells. Times are the processor
time of the thread, so that a busy machine refuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from time import thread_time
from typing import Any

import numpy as np

from infernix_plugin.errors import ConstraintTooLarge
from infernix_plugin.grammar import budget
from infernix_plugin.grammar.ir import CharSet, Grammar, Literal, Node, TokenSet, walk
from infernix_plugin.matching.domain import TokenClass, TokenDomain

MAX_RULES = 2048
"""Largest number of rules; xgrammar takes n * n microseconds for n that follow each other and may each be empty."""
MAX_LETTERS = 1 << 18
"""Largest number of characters in texts and of ranges in classes; xgrammar takes 5 to 10 us for each."""
MAX_TOKEN_SETS = 128
"""Most token terminals; xgrammar keeps a mask of the whole vocabulary for each."""

_SAMPLES = (1 << 14, 1 << 10, 1 << 6)
"""One token in so many is in each of the samples. None of them may take longer than the whole is allowed to, which the
one before tells; what the whole takes is only told by the last."""
_SHARED = 0.6
"""Tokens with a common beginning are tried together, so work grows more slowly than the vocabulary. Measured with
Qwen3's: 28 to 35 times the sample's time for 58 times its tokens."""
_LENGTHS = (1, 2, 4, 8, 8, 8)
"""Bytes of the tokens of a walk, about: growing, as what ambiguity costs may double with each byte."""
MASKS = len(_LENGTHS)
"""Masks of a walk."""
_CHOICES = 64
_ACCEPT_WEIGHT = 20
"""A mask behind a token takes many times what the token took, and is better not asked for to know it."""
_WALK_SECONDS = (0.05, 0.1, 0.15, 0.2)
"""What the masks of a walk may take: with single bytes, and with each sample. With the last it is 20 to 30 times less
than with the whole vocabulary."""


class Rehearsal:
    """The small vocabularies, whose ids are those of the whole one."""

    def __init__(self, domain: TokenDomain, pieces: Sequence[bytes]) -> None:
        """Index them; ``pieces`` are the bytes of all ids as xgrammar gets them. All keep the control tokens."""
        texts = [token for token in range(domain.vocab_size) if domain.token_class(token) is TokenClass.TEXT]
        kept = [token for token in range(domain.vocab_size) if domain.token_class(token) is TokenClass.CONTROL]
        kept += [token for token in texts if len(domain.token_bytes(token)) == 1]
        samples = [set(kept), *({*kept, *texts[::step]} for step in _SAMPLES)]
        self._domain = domain
        self._compilers = [_compiler(pieces, sample) for sample in samples]
        self._growth: list[float] = [step // next_step for step, next_step in pairwise(_SAMPLES)]
        self._growth.append(max(_SHARED * len(texts) / len(samples[-1]), 1.0))

    def check(self, run: Callable[[Any], Any]) -> None:
        """Refuse what is too slow; ``run`` compiles it with a given xgrammar compiler.

        Raises:
            ConstraintTooLarge: the message names the limit.
            RuntimeError: whatever else ``run`` raises.
        """
        fixed = self._rehearse(self._compilers[0], run, _WALK_SECONDS[0])
        for compiler, walk_seconds, growth in zip(self._compilers[1:], _WALK_SECONDS[1:], self._growth, strict=True):
            budget.checkpoint()
            sampled = self._rehearse(compiler, run, walk_seconds)
            needed = fixed + max(sampled - fixed, 0.0) * growth
            allowed = budget.seconds()
            if allowed is not None and needed > allowed:
                raise ConstraintTooLarge(
                    f"the grammar would be compiled for {needed:.0f} s or longer; max_compile_seconds is {allowed:g}",
                    hint="Use smaller counts, and fewer repetitions and optional parts in a row.",
                )
        budget.checkpoint(coming=needed)

    def _rehearse(self, compiler: Any, run: Callable[[Any], Any], seconds: float) -> float:
        """Compile and walk; return the time of the first."""
        started = thread_time()
        compiled = run(compiler)
        took = thread_time() - started
        self.walk(compiled, seconds)
        return took

    def walk(self, compiled: Any, seconds: float) -> None:
        """Compute the masks of a short text.

        Raises:
            ConstraintTooLarge: they take longer than ``seconds``.
        """
        import xgrammar

        matcher = xgrammar.GrammarMatcher(compiled)
        row = np.zeros(self._domain.mask_words, dtype=np.int32)
        for length in _LENGTHS:
            started = thread_time()
            matcher.fill_next_token_bitmask(row)
            seconds -= thread_time() - started
            token = self._next(row, length)
            if token is not None:
                started = thread_time()
                matcher.accept_token(token)
                seconds -= _ACCEPT_WEIGHT * (thread_time() - started)
            if seconds < 0:
                raise ConstraintTooLarge(
                    "the masks of this grammar take too long: too many of its rules match the same text",
                    hint="Write each part of the text in one way only.",
                )
            if token is None:
                break

    def _next(self, row: np.ndarray[Any, np.dtype[np.int32]], longest: int) -> int | None:
        """One of the legal tokens, of about that many bytes."""
        tokens = np.flatnonzero(np.unpackbits((row & self._domain.generable_bits).view(np.uint8), bitorder="little"))
        some = tokens[:: max(tokens.size // _CHOICES, 1)].tolist()
        lengths = {token: len(self._domain.token_bytes(token)) for token in some}
        return min(some, key=lambda token: (lengths[token] > longest, abs(lengths[token] - longest)), default=None)


def _compiler(pieces: Sequence[bytes], members: Collection[int]) -> Any:
    import xgrammar

    few = [b""] * len(pieces)
    for token in members:
        few[token] = pieces[token]
    index = xgrammar.TokenizerInfo(few, xgrammar.VocabType.RAW, vocab_size=len(few), stop_token_ids=[])
    return xgrammar.GrammarCompiler(index, max_threads=1, cache_enabled=False)


def letters(grammar: Grammar) -> int:
    """The number of characters in texts and of ranges in classes."""
    return sum(_letters(node) for body in grammar.rules.values() for node in walk(body))


def _letters(node: Node) -> int:
    return len(node.text) if isinstance(node, Literal) else len(node.ranges) if isinstance(node, CharSet) else 0


def check_size(grammar: Grammar) -> None:
    """Refuse a normalised grammar that takes too long or too much memory with any vocabulary.

    Raises:
        ConstraintTooLarge: the message names the limit and the value.
    """
    token_sets = {node for body in grammar.rules.values() for node in walk(body) if isinstance(node, TokenSet)}
    for what, count, most in (
        ("rules", len(grammar.rules), MAX_RULES),
        ("characters and ranges", letters(grammar), MAX_LETTERS),
        ("different token terminals", len(token_sets), MAX_TOKEN_SETS),
    ):
        if count > most:
            raise ConstraintTooLarge(f"the grammar needs {count} {what}; the most is {most}")
