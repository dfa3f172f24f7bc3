"""What is fuzzed: each reader with the texts made for it.

A target turns a ``ConstraintError`` into its name; anything else that leaves it is a fault.
Time is processor time of the thread, far beyond what the compile's own limit allows, so that no busy machine fails it.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from time import thread_time
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from infernix_plugin import ConstraintCompiler, ConstraintError, MaskState, OutputConstraint
from infernix_plugin.framing.continuation import as_tokens, written_content
from infernix_plugin.framing.reader import OutputReader
from infernix_plugin.framing.tools.contract import CallChoice, Tool, ToolContract
from infernix_plugin.matching.compiled import CompiledGrammar
from infernix_plugin.matching.session import Session
from infernix_plugin.structured_output.structural_tag import StructuralTag
from infernix_plugin.structured_output.translation import asked_of
from tests.framing.calling import DOMAIN, STOP, THINKING, form_of, read, tokens_of
from tests.fuzz import languages
from tests.fuzz.mutations import mutated

COMPILE_SECONDS = 1.0
CEILING_SECONDS = 20.0
LONGEST_MESSAGE = 2000
STEPS = 6
FIELDS = ("json", "json_object", "regex", "choice", "grammar", "structural_tag")
NAMES_TOKENS = re.compile(r"Token\(|<")
Rows = NDArray[np.int32]
COMPILER = ConstraintCompiler(DOMAIN, max_compile_seconds=COMPILE_SECONDS, cache_bytes=1 << 20)


@dataclass(frozen=True)
class Target:
    """``read`` gets what ``inputs`` makes, and returns what became of it."""

    inputs: st.SearchStrategy[Any]
    read: Callable[[Any], str]


def outcome(work: Callable[[], object]) -> str:
    """Run one input; the name of the refusal, or ``read``."""
    started = thread_time()
    try:
        work()
        refusal = None
    except ConstraintError as error:
        refusal = error
    assert thread_time() - started < CEILING_SECONDS
    if refusal is None:
        return "read"
    assert len(str(refusal).encode()) < LONGEST_MESSAGE  # only a bounded part of the input, and writable as UTF-8
    return type(refusal).__name__


def walk(compiled: CompiledGrammar, prefix: bytes = b"", *, by_text: bool = True) -> None:
    """Follow the masks for a few tokens: what they allow is accepted, what they forbid is not, and the output may end
    where they allow its end. The same tokens as drafts give the same masks, and so does their text as a prefix, unless
    a grammar names tokens."""
    session = compiled.session(prefix)
    rows = np.zeros((STEPS + 1, DOMAIN.mask_words), dtype=np.int32)
    states: list[MaskState] = []
    drafts: list[int] = []
    for step, row in enumerate(rows):
        states.append(session.fill_mask(row))
        if states[-1] is not MaskState.READY or step == STEPS:
            break
        bits = np.unpackbits(row.view(np.uint8), bitorder="little")
        assert session.complete == bool(bits[STOP])
        legal, illegal = np.flatnonzero(bits), np.flatnonzero(bits == 0)
        if len(illegal):
            assert not session.accept(int(illegal[step * 7919 % len(illegal)]))
        drafts.append(int(legal[step * 104_729 % len(legal)]))
        assert session.accept(drafts[-1])
    if session.engine_error is None:
        _compare_with_lookahead(compiled.session(prefix), drafts, states, rows)
        if by_text and not session.terminated and not any(map(DOMAIN.is_control, drafts)):
            again = compiled.session(prefix + b"".join(map(DOMAIN.token_bytes, drafts)))
            assert again.complete == session.complete
            assert _mask(again) == (states[-1], rows[len(drafts)].tobytes())


def _mask(session: Session) -> tuple[MaskState, bytes]:
    row = np.zeros(DOMAIN.mask_words, dtype=np.int32)
    return session.fill_mask(row), row.tobytes()


def _compare_with_lookahead(session: Session, drafts: list[int], states: list[MaskState], rows: Rows) -> None:
    before = _mask(session)
    seen = np.zeros((len(drafts) + 1, DOMAIN.mask_words), dtype=np.int32)
    assert session.lookahead(drafts, seen) == states
    reached = sum(state is MaskState.READY for state in states)
    assert np.array_equal(seen[:reached], rows[:reached])
    assert _mask(session) == before


def compiled(make: Callable[[str], OutputConstraint]) -> Callable[[str], str]:
    return lambda text: outcome(lambda: walk(COMPILER.compile(make(text)), by_text=not NAMES_TOKENS.search(text)))


def as_sent(field: str) -> Callable[[str], str]:
    """Read what a ``structured_outputs`` object holds in a field, as the server does."""

    def work(text: str) -> None:
        params = SimpleNamespace(**{**dict.fromkeys(FIELDS), field: text})
        match asked_of(params):
            case StructuralTag() as tag:
                walk(COMPILER.compile_structural_tag(tag.text), by_text="token" not in text)
                walk(COMPILER.compile_structural_tag(tag.after(THINKING).text), by_text=False)
            case OutputConstraint() as constraint:
                walk(COMPILER.compile(constraint), by_text=not NAMES_TOKENS.search(text))

    return lambda text: outcome(lambda: work(text))


def strict_tool(parameters: str) -> str:
    contract = ToolContract((Tool("f", parameters, strict=True),), CallChoice.REQUIRED)
    return outcome(lambda: walk(COMPILER.prepare_tools(contract).compiled))


def declared_tools(given: tuple[list[tuple[str, str | None, bool]], CallChoice, list[str] | None, bool]) -> str:
    tools, choice, allowed, parallel = given

    def work() -> None:
        names = None if allowed is None else frozenset(allowed)
        contract = ToolContract(tuple(Tool(*tool) for tool in tools), choice, names, parallel)
        walk(COMPILER.prepare_tools(contract).compiled)

    return outcome(work)


def free_output(given: tuple[str, str | None, bool, Any]) -> str:
    """An output that no grammar made: whatever it is, it is read, and in chunks as at once."""
    text, parameters, thinking, rng = given
    contract = ToolContract((Tool("lookup", parameters), Tool("now")))
    form = form_of(contract, enforced=False, **({"framing": THINKING} if thinking else {}))
    ids = tokens_of(text.encode("utf-8", "replace").decode(), rng)
    at_once = read(form, ids)
    assert read(form, ids, rng) == at_once
    for call in at_once.complete_calls:
        json.loads(call.arguments)
    return "read"


def continuation(given: tuple[bytes, str]) -> str:
    """A prefix under a constraint, and the same text as the end of a prompt."""
    prefix, schema = given
    text = prefix.decode("utf-8", "replace")

    def work() -> None:
        prompt = tokens_of(f"<|im_start|>assistant\n<think>\n\n</think>\n\n{text}")
        if not any(marker in text for marker in ("<think>", "</think>", "<|im_start|>")):
            assert written_content(prompt, DOMAIN) == text.encode()
        tokens = as_tokens(text, DOMAIN)
        assert b"".join(map(DOMAIN.token_bytes, tokens)) == text.encode()
        reader = OutputReader(form_of(ToolContract((Tool("lookup"),)), enforced=False), DOMAIN)
        reader.go_on_from(tokens)
        reader.finish()
        walk(COMPILER.compile(OutputConstraint.json_schema(schema)), prefix)

    return outcome(work)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_KEYWORDS = sorted(
    {
        *("type", "enum", "const", "properties", "required", "items", "prefixItems", "additionalProperties", "pattern"),
        *("patternProperties", "propertyNames", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum"),
        *("exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems", "contains", "minContains"),
        *("maxContains", "minProperties", "maxProperties", "dependentRequired", "dependentSchemas", "dependencies"),
        *("anyOf", "allOf", "oneOf", "not", "if", "then", "else", "$ref", "$defs", "definitions", "$id", "$anchor"),
        *("$schema", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$vocabulary", "format"),
        *("unevaluatedProperties", "unevaluatedItems", "additionalItems", "default", "title", "nullable", "id"),
    }
)
_NONSENSE = st.recursive(
    st.booleans() | st.sampled_from([{}, [], "", "string", "#", "object", -1, 0, 1.5, None, {"type": "array"}]),
    lambda inner: (
        st.dictionaries(st.sampled_from(_KEYWORDS), inner | st.lists(inner, max_size=2) | _JSON, max_size=4)
        | st.dictionaries(st.sampled_from(_KEYWORDS), st.dictionaries(st.text(max_size=2), inner, max_size=2))
    ),
    max_leaves=8,
).map(json.dumps)
_SCHEMAS = mutated(languages.schemas(), languages.SCHEMA_PARTS) | _NONSENSE
_PARAMETERS = mutated(languages.ARGUMENTS, languages.SCHEMA_PARTS) | _NONSENSE
_NAMES = st.sampled_from(
    ["f", "g", "lookup", "", "a>b", "a\nb", "\ud800", "é", "x" * 300, "</function>", "<tool_call>"]
)
_OUTPUTS = mutated(languages.CALLS, languages.CALL_PARTS)

TARGETS = {
    "gbnf": Target(mutated(languages.GBNF, languages.GBNF_PARTS), compiled(OutputConstraint.grammar)),
    "lark": Target(mutated(languages.LARK, languages.LARK_PARTS), compiled(OutputConstraint.grammar)),
    "grammar as sent": Target(
        mutated(languages.LARK + languages.GBNF, languages.LARK_PARTS + languages.GBNF_PARTS), as_sent("grammar")
    ),
    "structural tag": Target(mutated(languages.TAGS, languages.TAG_PARTS), as_sent("structural_tag")),
    "regex": Target(mutated(languages.REGEX, languages.REGEX_PARTS), compiled(OutputConstraint.regex)),
    "schema": Target(_SCHEMAS, compiled(OutputConstraint.json_schema)),
    "choice": Target(
        st.lists(st.text(max_size=8) | st.sampled_from(["a", "ab", "\ud800", ""]) | _JSON, max_size=6),
        lambda choices: outcome(lambda: walk(COMPILER.compile(OutputConstraint.choice(choices)))),
    ),
    "strict tool": Target(_PARAMETERS, strict_tool),
    "declared tools": Target(
        st.tuples(
            st.lists(st.tuples(_NAMES, st.none() | _PARAMETERS, st.booleans()), max_size=3),
            st.sampled_from(CallChoice),
            st.none() | st.lists(_NAMES, max_size=2),
            st.booleans(),
        ),
        declared_tools,
    ),
    "free output": Target(
        st.tuples(_OUTPUTS, st.none() | _PARAMETERS, st.booleans(), st.randoms(use_true_random=False)), free_output
    ),
    "continuation": Target(
        st.tuples(
            st.binary(max_size=12)
            | mutated(languages.PREFIXES, languages.SCHEMA_PARTS).map(
                lambda text: text.encode("utf-8", "surrogatepass")
            )
            | _OUTPUTS.map(lambda text: text.encode("utf-8", "surrogatepass")),
            st.sampled_from(['{"type":"object"}', "{}", '{"type":"string","maxLength":5}', '{"enum":[1,12,"a"]}']),
        ),
        continuation,
    ),
}
