"""xgrammar on a tiny vocabulary: every byte, a few longer tokens, and one stop token."""

from __future__ import annotations

import xgrammar

LONGER = [text.encode() for text in ("ab", "ba", "aa", "bb", "aé", "éb", "aab", "abab", "))", "x))", "é", "bé", "((")]
VOCABULARY = [bytes([value]) for value in range(256)] + LONGER
STOP = len(VOCABULARY)

_INFO = xgrammar.TokenizerInfo([*VOCABULARY, b"</s>"], xgrammar.VocabType.RAW, stop_token_ids=[STOP])
_COMPILER = xgrammar.GrammarCompiler(_INFO, max_threads=1, cache_enabled=False)


class Engine:
    """One compiled grammar."""

    def __init__(self, ebnf: str) -> None:
        self._compiled = _COMPILER.compile_grammar(ebnf)

    def accepts(self, text: str | bytes) -> bool:
        """Whether the whole text is in the language."""
        matcher = self._after(text)
        return matcher is not None and matcher.is_completed()

    def reaches(self, text: str | bytes) -> bool:
        """Whether the text can begin a text of the language, tried byte by byte."""
        return self._after(text) is not None

    def legal(self, text: str | bytes) -> set[int]:
        """The tokens that the mask after ``text`` allows."""
        matcher = self._after(text)
        assert matcher is not None
        mask = xgrammar.allocate_token_bitmask(1, _INFO.vocab_size)
        matcher.fill_next_token_bitmask(mask)
        words = mask[0].tolist()
        return {token for token in range(STOP + 1) if words[token // 32] >> token % 32 & 1}

    def accepts_tokens(self, tokens: list[int]) -> bool:
        """Whether the tokens are legal one after another and complete the language."""
        matcher = xgrammar.GrammarMatcher(self._compiled)
        return all(matcher.accept_token(token) for token in tokens) and matcher.is_completed()

    def _after(self, text: str | bytes) -> xgrammar.GrammarMatcher | None:
        matcher = xgrammar.GrammarMatcher(self._compiled)
        return matcher if not text or matcher.accept_string(text) else None
