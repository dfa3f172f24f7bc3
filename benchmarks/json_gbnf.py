"""Mask times of an ordinary character-level JSON grammar: as it is on xgrammar, through this project, and hand-tuned.

    python benchmarks/json_gbnf.py TOKENIZER

``TOKENIZER`` is a folder that transformers can load. The same text is walked token by token; the columns are the mean
and the largest CPU time of one mask, without the first.
"""

from __future__ import annotations

from pathlib import Path
from time import thread_time
from typing import Annotated, Any, Protocol

import numpy as np
import typer
import xgrammar
from rich.console import Console
from rich.table import Table

from infernix_plugin import ConstraintCompiler, OutputConstraint, TokenDomain
from infernix_plugin.testing.tokenizer_folder import tokenizer_folder

ORDINARY = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" char* "\"" ws
char   ::= [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F])
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws     ::= "" | " " | "\n" [ \t]{0,20}
"""

HAND_TUNED = ORDINARY.replace(
    'string ::= "\\"" char* "\\"" ws',
    'string ::= "\\"" tail ws\ntail ::= "\\"" | [^"\\\\\\x7F\\x00-\\x1F] tail | "\\\\" escape tail\n'
    'escape ::= ["\\\\bfnrt] | "u" [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F]',
)

TEXT = (
    '{"name": "Ada Lovelace", "note": "first \\"program\\", 1843: \\u0041nalytical engine", "tags": ["mathematics", '
    '"poetry", "machines"], "born": {"year": 1815, "place": "London"}, "score": -12.5e3, "alive": false, "next": null}'
)


class Walk(Protocol):
    """One matcher at the start of its language."""

    def fill(self) -> None:
        """Compute the mask."""

    def accept(self, token: int) -> bool:
        """Go on by one token."""


class Xgrammar:
    """The text of a grammar handed to xgrammar as it is."""

    def __init__(self, compiled: Any, vocab_size: int) -> None:
        self._matcher = xgrammar.GrammarMatcher(compiled)
        self._row = xgrammar.allocate_token_bitmask(1, vocab_size)

    def fill(self) -> None:
        """Compute the mask."""
        self._matcher.fill_next_token_bitmask(self._row)

    def accept(self, token: int) -> bool:
        """Go on by one token."""
        return bool(self._matcher.accept_token(token))


class Ours:
    """A session of this project."""

    def __init__(self, compiled: Any, vocab_size: int) -> None:
        self._session = compiled.session()
        self._row = np.zeros((vocab_size + 31) // 32, dtype=np.int32)

    def fill(self) -> None:
        """Compute the mask."""
        self._session.fill_mask(self._row)

    def accept(self, token: int) -> bool:
        """Go on by one token."""
        return bool(self._session.accept(token))


def times(walk: Walk, tokens: list[int]) -> list[float]:
    """Return the milliseconds of each mask but the first."""
    spent = []
    for token in tokens:
        started = thread_time()
        walk.fill()
        spent.append(1000 * (thread_time() - started))
        if not walk.accept(token):
            raise SystemExit(f"token {token} of the text is refused")
    return spent[1:]


def main(tokenizer: Annotated[Path, typer.Argument(callback=tokenizer_folder)]) -> None:
    """Measure and print the table."""
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(tokenizer)
    tokens = loaded(TEXT, add_special_tokens=False)["input_ids"]
    domain = TokenDomain.from_pretrained(tokenizer)
    info = xgrammar.TokenizerInfo.from_huggingface(loaded, vocab_size=domain.vocab_size)
    theirs = xgrammar.GrammarCompiler(info, max_threads=1)
    rows = {
        "ordinary, straight to xgrammar": Xgrammar(theirs.compile_grammar(ORDINARY), domain.vocab_size),
        "ordinary, through infernix-plugin": Ours(
            ConstraintCompiler(domain).compile(OutputConstraint.grammar(ORDINARY)), domain.vocab_size
        ),
        "hand-tuned, straight to xgrammar": Xgrammar(theirs.compile_grammar(HAND_TUNED), domain.vocab_size),
    }
    table = Table("grammar", "mean ms", "max ms", title=f"{len(tokens)} tokens, {domain.vocab_size} ids")
    for title, walk in rows.items():
        spent = times(walk, tokens)
        table.add_row(title, f"{sum(spent) / len(spent):.3f}", f"{max(spent):.3f}")
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
