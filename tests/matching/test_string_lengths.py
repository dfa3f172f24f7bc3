"""Masks of bounded strings at every distance from the bound, with tokens of every length.

llguidance takes sets of tokens as a whole (its slices) where a terminal allows them all; a mask must not tell.
"""

from itertools import product

import numpy as np
import pytest

from infernix_plugin import ConstraintCompiler, OutputConstraint, TokenDomain

LONGEST = 36
UNITS = {"a": 1, " ": 1, "é": 1, "\\n": 1, "\\u0001": 1, "\x7f": 1, "\x01": None, "x": 1}
"""What tokens are made of, and how many characters of a string it is; None where JSON forbids it."""
TOKENS = [unit * count for unit, count in product(UNITS, range(1, LONGEST + 1))]
TOKENS += ["a" * count + '"' for count in range(LONGEST + 1)]
TOKENS += ["a" * count + "\\" for count in range(LONGEST + 1)]
TOKENS += ["a" * count + "é" for count in range(1, LONGEST)]
STOP = len(TOKENS)
DOMAIN = TokenDomain(
    [*(token.encode() for token in TOKENS), b"<e>"], control={"<e>": STOP}, stop=[STOP], vocab_size=STOP + 1
)
COMPILER = ConstraintCompiler(DOMAIN)


def written(token: str) -> tuple[int, str] | None:
    """Whole characters of a string that ``token`` writes, and what is left after them; None if JSON forbids it."""
    count = 0
    while token and token not in ('"', "\\"):
        unit = next((unit for unit in UNITS if token.startswith(unit)), "")
        if not unit or UNITS[unit] is None:
            return None
        count += 1
        token = token[len(unit) :]
    return count, token


def legal(token: str, least: int, most: int) -> bool:
    """Whether ``token`` may come where so many characters must still and may still follow."""
    found = written(token)
    if found is None:
        return False
    count, rest = found
    if rest == '"':
        return least <= count <= most
    return count + (rest == "\\") <= most


@pytest.mark.parametrize(("minimum", "maximum"), [(0, 33), (7, 21), (0, 5), (32, 32)])
def test_every_distance_from_the_bound(minimum: int, maximum: int) -> None:
    compiled = COMPILER.compile(
        OutputConstraint.json_schema(f'{{"type": "string", "minLength": {minimum}, "maxLength": {maximum}}}')
    )
    assert compiled.engine == "llguidance"
    session = compiled.session()
    assert session.accept(TOKENS.index('"'))
    row = np.zeros(DOMAIN.mask_words, dtype=np.int32)
    for length in range(maximum + 1):
        session.fill_mask(row)
        bits = np.unpackbits(row.view(np.uint8), bitorder="little")
        found = {token for place, token in enumerate(TOKENS) if bits[place]}
        assert found == {token for token in TOKENS if legal(token, minimum - length, maximum - length)}, length
        assert length == maximum or session.accept(TOKENS.index("a"))
