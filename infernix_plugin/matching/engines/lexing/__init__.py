"""When may a longest-match lexer cut the output?

llguidance reads a terminal as long as *any* terminal that is allowed at that point can go on, and forgets the shorter
matches. That is exact if no terminal that is allowed together with a matched one continues it with a character that
may follow the match. JSON terminals have a reason for that, which this module checks on the grammar itself:

- no string, cut at its closing quote, is the beginning of a longer string; a punctuation mark is one character;
- a word (name, number, literal) is never followed by a word, a run of blanks never by blanks.

What stands behind a single token or a text of its own, and nowhere else, is looked at apart: tool calls, for example.

Every other terminal must keep the promise of :class:`~infernix_plugin.grammar.ir.Lexeme` and be the only one where it
is allowed, or one of several of which it is proven that no text of one is a text of another or its beginning. What
only the end of the output follows may be the beginning of others: it is never cut too early. A grammar for which this
cannot be shown is not run by llguidance.
"""

from __future__ import annotations

from infernix_plugin.grammar.ir import Grammar, Lexeme
from infernix_plugin.matching.domain import TokenDomain
from infernix_plugin.matching.engines.lexing.frames import frame_ambiguity, plain_value
from infernix_plugin.matching.engines.lexing.joints import Joints
from infernix_plugin.matching.engines.lexing.proof import joints_ambiguity
from infernix_plugin.matching.engines.lexing.token_kinds import only_json_tokens

__all__ = ["ambiguity", "frame_ambiguity", "plain_value"]


def ambiguity(grammar: Grammar, domain: TokenDomain) -> str | None:
    """Why longest-match lexing may not be exact for ``grammar``, or ``None`` if it is. Every rule counts."""
    if isinstance(grammar.start, Lexeme):
        return None  # one terminal, and nothing stands beside it or after it
    return None if only_json_tokens(grammar.rules) else joints_ambiguity(Joints(grammar), domain)
