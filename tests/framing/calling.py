"""A small vocabulary with Qwen's control tokens, tools, and walks that finish their calls."""

from __future__ import annotations

import json
import random
import re

import numpy as np

from infernix_plugin.framing.events import ReadOutput
from infernix_plugin.framing.phases import CONTENT, Framing
from infernix_plugin.framing.reader import OutputForm, OutputReader
from infernix_plugin.framing.tools.call_reader import declared_functions
from infernix_plugin.framing.tools.contract import CallChoice, ToolContract
from infernix_plugin.framing.tools.grammar import calls_of
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.matching import ConstraintCompiler, MaskState, Session, TokenDomain

MARKERS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_start|>", "<|im_end|>"]
WORDS = [
    "\n<function=", "<parameter=", ">\n", "\n</parameter>\n", "</parameter>", "\n</", "</function>\n", "function",
    "parameter", "\n\n",
    "null", "true", "12", '": ', '", "', '{"', '"]', '"}', "}\n", "lookup", "city", "é", "日本", "  ",
]  # fmt: skip
PIECES = [*(bytes([byte]) for byte in range(256)), *(word.encode() for word in WORDS), *map(str.encode, MARKERS)]
CONTROL = {marker: len(PIECES) - len(MARKERS) + index for index, marker in enumerate(MARKERS)}
ENDS = frozenset(b"<>/,}]:")
STOP = CONTROL["<|im_end|>"]
DOMAIN = TokenDomain(PIECES, control=CONTROL, stop=[STOP], vocab_size=len(PIECES) + 3)
COMPILER = ConstraintCompiler(DOMAIN)
OPTIONS = GrammarOptions()
THINKING = Framing(thinking=True, close_id=CONTROL["</think>"])

_MARKERS = re.compile("(" + "|".join(map(re.escape, MARKERS)) + ")")
_TOKENS = re.compile("|".join(map(re.escape, sorted(WORDS, key=len, reverse=True))) + "|.", re.DOTALL)


def tokens_of(text: str, rng: random.Random | None = None) -> list[int]:
    """One tokenisation of ``text``, markers as their tokens; with ``rng`` a random one."""
    ids: list[int] = []
    pieces = (
        piece for part in _MARKERS.split(text) for piece in ([part] if part in CONTROL else _TOKENS.findall(part))
    )
    for piece in pieces:
        if piece in CONTROL:
            ids.append(CONTROL[piece])
        elif piece in WORDS and (rng is None or rng.random() < 0.5):
            ids.append(256 + WORDS.index(piece))
        else:
            ids.extend(piece.encode())
    return ids


def text_of(ids: list[int]) -> str:
    """What the tokens spell."""
    return b"".join(map(DOMAIN.token_bytes, ids)).decode(errors="replace")


def session_of(contract: ToolContract, content=None, framing: Framing = CONTENT) -> Session:
    return COMPILER.prepare_tools(contract, content, framing=framing).compiled.session()


def is_allowed(session: Session, ids: list[int]) -> bool:
    """Whether the tokens, all of them, are accepted, each also by the mask before it."""
    row = np.zeros(DOMAIN.mask_words, dtype=np.int32)
    for token in ids:
        state = session.fill_mask(row)
        masked = state is MaskState.READY and bool(int(row[token >> 5]) >> (token & 31) & 1)
        assert session.accept(token) == masked
        if not masked:
            return False
    return True


def walk(session: Session, rng: random.Random, most: int = 400) -> list[int] | None:
    """Random legal tokens up to a stop token; those that end something are likelier. ``None`` if there are too many."""
    row = np.zeros(DOMAIN.mask_words, dtype=np.int32)
    ids: list[int] = []
    ending = {*tokens_of("\n</parameter>\n"), *tokens_of("</function>\n"), STOP, *map(CONTROL.get, MARKERS), ord('"')}
    while len(ids) < most:
        assert session.fill_mask(row) is MaskState.READY
        bits = np.unpackbits(row.view(np.uint8), bitorder="little")
        legal = np.flatnonzero(bits).tolist()
        likely = [token for token in legal if token in ending or token in ENDS]
        token = rng.choice(likely if likely and rng.random() < 0.4 else legal)
        assert session.accept(token)
        ids.append(token)
        if session.terminated:
            return ids
    return None


def form_of(contract: ToolContract, *, enforced: bool, framing: Framing = CONTENT, free: bool = True) -> OutputForm:
    if not enforced:
        return OutputForm(framing, declared_functions(contract))
    calls = {call.name: call for call in calls_of(contract, OPTIONS)}
    return OutputForm(framing, calls, enforced=True, content_is_free=free)


def read(form: OutputForm, ids: list[int], rng: random.Random | None = None) -> ReadOutput:
    """Read an output, at once or in random chunks."""
    reader, output = OutputReader(form, DOMAIN), ReadOutput()
    start = 0
    while start < len(ids):
        end = len(ids) if rng is None else start + rng.randint(1, 4)
        output.add(reader.feed(ids[start:end]))
        start = end
    output.add(reader.finish())
    return output


def required(*tools, **policy) -> ToolContract:
    return ToolContract(tools, CallChoice.REQUIRED, **policy)


def schema(properties: dict, required=(), **more) -> str:
    document = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return json.dumps({**document, **more})
