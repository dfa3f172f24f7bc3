"""Texts that are nearly right: a good one, cut, doubled, joined to another, or with strange characters in it."""

from collections.abc import Sequence

from hypothesis import strategies as st

STRANGE = ["\0", "\ud800", "\udfff", "\ufeff", "\u2028", "\r", "\x7f", "é", "\U0010ffff", "\\", '"', "'", "#", "\t"]
MOST_EDITS = 4
LONGEST = 4000


@st.composite
def mutated(draw: st.DrawFn, good: Sequence[str], parts: Sequence[str]) -> str:
    """One of ``good`` after some edits; ``parts`` are the words of its language, which edits insert."""
    text = draw(st.sampled_from(good))
    for _ in range(draw(st.integers(0, MOST_EDITS))):
        start = draw(st.integers(0, len(text)))
        stop = draw(st.integers(start, min(len(text), start + 40)))
        match draw(st.integers(0, 4)):
            case 0:
                inner = ""
            case 1:
                inner = draw(st.sampled_from(parts)) * draw(st.sampled_from([1, 1, 2, 300]))
            case 2:
                inner = draw(st.sampled_from(STRANGE) | st.characters())
            case 3:
                inner = text[start:stop] * 2
            case _:
                inner = draw(st.sampled_from(good))
        text = (text[:start] + inner + text[stop:])[:LONGEST]
    return text
