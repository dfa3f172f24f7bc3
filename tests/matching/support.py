"""Small vocabularies, grammars that can be enumerated, and walks through masks."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np

from infernix_plugin.grammar.ir import Alt, CharSet, Grammar, Lexeme, Literal, Node, Ref, Repeat, Seq, TokenSet, Words
from infernix_plugin.matching import CompiledGrammar, MaskState, Session, TokenDomain
from infernix_plugin.matching.engines.llguidance import LlguidanceEngine
from infernix_plugin.matching.engines.meter import Allowance
from infernix_plugin.matching.engines.xgrammar import XgrammarEngine
from infernix_plugin.matching.memo.account import Account
from infernix_plugin.matching.memo.machine import Terminals
from infernix_plugin.matching.memo.matcher import RememberedGrammar
from infernix_plugin.matching.memo.memory import Memory

PIECES = [
    *(bytes([byte]) for byte in b'ab1{}[]",: \n\\'),
    *"é中".encode().splitlines(),
    b"\xc3",
    b"\xa9",
    b"\xe4",
    b"\xb8\xad",
    b"\xad\xc3",
    b"aa",
    b"ab",
    b"ba",
    b'"a',
    b'a"',
    b'{"',
    b'"}',
    b'":',
    b", ",
    b"\n\n",
    b"\xff",
    b"",
    b"<x>",
    b"<y>",
    b"<e>",
    b"<|image_pad|>",
]
"""Tokens over a small alphabet: several characters, half characters, an invalid byte, an empty piece, markers."""

CONTROL = {marker: PIECES.index(marker.encode()) for marker in ("<x>", "<y>", "<e>", "<|image_pad|>")}
DOMAIN = TokenDomain(
    PIECES,
    control=CONTROL,
    stop=[CONTROL["<e>"]],
    unused=[CONTROL["<|image_pad|>"]],
    vocab_size=len(PIECES) + 9,
)
STOP = CONTROL["<e>"]


class RememberingEngine:
    """llguidance with masks that are remembered from the first matcher on, whatever that costs."""

    def __init__(self, memory_bytes: int) -> None:
        self._inner = LlguidanceEngine(DOMAIN, Allowance(0.1, 2.0))
        self.memory = Memory(memory_bytes)
        self._terminals = Terminals(self.memory)

    def compile(self, grammar: Grammar) -> RememberedGrammar:
        made = RememberedGrammar(self._inner.compile(grammar), grammar, DOMAIN, self._terminals)
        made.account = _Rich()
        return made

    def around(self, other: RememberedGrammar) -> RememberedGrammar:
        """The same grammar with the memory and the means of this engine."""
        made = RememberedGrammar(other.inner, other.grammar, DOMAIN, self._terminals)
        made.account = _Rich()
        return made


class _Rich(Account):
    """Affords everything."""

    def enter_matcher(self) -> bool:
        return True

    def used_again(self) -> bool:
        return True

    def affords_miss(self, work: int) -> bool:
        return True


ENGINES = {
    "xgrammar": XgrammarEngine(DOMAIN, cache_bytes=16 << 20, allowance=Allowance(0.1, 2.0)),
    "llguidance": LlguidanceEngine(DOMAIN, Allowance(0.1, 2.0)),
    "remembered": RememberingEngine(16 << 20),
    "forgetful": RememberingEngine(6000),
}

Word = tuple[int | str, ...]
"""A member of a language: bytes, and for token terminals ``"<id>"``."""


def compiled(engine: str, grammar: Grammar | Node) -> CompiledGrammar:
    if not isinstance(grammar, Grammar):
        grammar = Grammar({"root": grammar})
    return CompiledGrammar(DOMAIN, ENGINES[engine].compile(grammar))


def words(node: Node, rules: dict[str, Node] | None = None) -> set[Word]:
    """All members of a finite language, by definition."""
    match node:
        case Literal(text):
            return {tuple(text.encode())}
        case Words(texts):
            return {tuple(text.encode()) for text in texts}
        case CharSet(ranges):
            return {tuple(chr(code).encode()) for low, high in ranges for code in range(low, high + 1)}
        case TokenSet(ids, exclude):
            generable = (token for token in range(DOMAIN.vocab_size) if DOMAIN.is_generable(token))
            return {(f"<{token}>",) for token in generable if (token in ids) != exclude}
        case Seq(items):
            found: set[Word] = {()}
            for item in items:
                found = {left + right for left in found for right in words(item, rules)}
            return found
        case Alt(options):
            return set().union(*(words(option, rules) for option in options))
        case Repeat(item, minimum, maximum):
            assert maximum is not None
            once = words(item, rules)
            several: set[Word] = {()}
            found = set()
            for count in range(maximum + 1):
                if count >= minimum:
                    found |= several
                several = {left + right for left in several for right in once}
            return found
        case Lexeme(item):
            return words(item, rules)
        case Ref(name):
            assert rules is not None
            return words(rules[name], rules)
    raise TypeError(node)


def after(rest: set[Word], token: int) -> set[Word]:
    """What may still be written, given what might have been and the token that was."""
    spelled = tuple(DOMAIN.token_bytes(token)) if DOMAIN.token_class(token).name == "TEXT" else None
    return {word[1:] for word in rest if word[:1] == (f"<{token}>",)} | {
        word[len(spelled) :] for word in rest if spelled and word[: len(spelled)] == spelled
    }


def legal(rest: set[Word]) -> set[int]:
    """The mask that ``rest`` stands for."""
    found = {token for token in range(DOMAIN.vocab_size) if DOMAIN.is_generable(token) and after(rest, token)}
    return found | ({STOP} if () in rest else set())


def new_row(rows: int | None = None) -> np.ndarray:
    """Rows full of rubbish, as a reused buffer would be."""
    shape = (DOMAIN.mask_words,) if rows is None else (rows, DOMAIN.mask_words)
    return np.full(shape, 0x5A5A5A5A, dtype=np.int32)


def ids(row: np.ndarray) -> set[int]:
    return set(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist())


def mask(session: Session) -> tuple[MaskState, set[int]]:
    row = new_row()
    return session.fill_mask(row), ids(row)


def replayed(grammar: CompiledGrammar, tokens: Iterable[int]) -> Session:
    session = grammar.session()
    for token in tokens:
        assert session.accept(token)
    return session


def random_walk(grammar: CompiledGrammar, rng: random.Random, steps: int) -> list[int]:
    """Legal tokens, the stop token at most at the end."""
    session = grammar.session()
    taken: list[int] = []
    for _ in range(steps):
        state, allowed = mask(session)
        if state is not MaskState.READY:
            break
        taken.append(rng.choice(sorted(allowed)))
        assert session.accept(taken[-1])
    return taken
