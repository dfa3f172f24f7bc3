"""How many tokens the reasoning may have: where they are spent, the output closes it with a given text."""

from __future__ import annotations

from collections.abc import Sequence

from infernix_plugin.framing.phases import THINK_OPEN, ControlTokens, Framing


class ThinkingBudget:
    """The budget of one output that begins in the reasoning.

    It only says which token has to come: the token then goes through masks, verification and the session like any
    other, so a forced close is the close that the model could have written itself.
    """

    def __init__(self, tokens: int, close_id: int, closing: Sequence[int] = ()) -> None:
        """Allow as many tokens.

        Args:
            tokens: of reasoning, without the closing text; negative is none.
            close_id: the token that ends the reasoning.
            closing: what is written where they are spent; the close token ends it, or is added.
        """
        before = closing[: closing.index(close_id)] if close_id in closing else closing
        self._closing = (*before, close_id)
        self._left = max(tokens, 0)
        self._written = 0
        self._open = True

    def observe(self, tokens: Sequence[int]) -> None:
        """Take in what the output goes on with."""
        for token in tokens:
            self._left, self._written, self._open = self._after(token)

    def forced(self, drafts: Sequence[int]) -> list[int | None]:
        """The token that must come now, and behind each further draft; ``None`` where any may. Changes nothing."""
        state = self._left, self._written, self._open
        found = [self._next()]
        try:
            for token in drafts:
                self.observe([token])
                found.append(self._next())
        finally:
            self._left, self._written, self._open = state
        return found

    def _next(self) -> int | None:
        return self._closing[self._written] if self._open and not self._left else None

    def _after(self, token: int) -> tuple[int, int, bool]:
        going_on = self._open and token != self._closing[-1]
        if not going_on:
            return self._left, self._written, False
        if self._left:
            return self._left - 1, self._written, True
        return 0, min(self._written + 1, len(self._closing) - 1), True


def budget_of(
    tokens: int | None, prompt: Sequence[int], framing: Framing, known: ControlTokens, closing: Sequence[int] = ()
) -> ThinkingBudget | None:
    """The budget of the output behind a prompt; ``None`` if there is none or it does not begin in the reasoning.

    Tokens of the reasoning that the prompt already holds count.
    """
    opening = known.control_id(THINK_OPEN)
    if tokens is None or framing.close_id is None or opening is None:
        return None
    written = next((count for count, token in enumerate(reversed(prompt)) if token == opening), 0)
    return ThinkingBudget(tokens - written, framing.close_id, closing)
