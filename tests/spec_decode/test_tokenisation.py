"""Tokens of text whose end is not known yet, with real merges and without."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from infernix_plugin import TokenDomain
from infernix_plugin.model_executor.tiny.tokenizer import train
from infernix_plugin.spec_decode.tokenisation import Tokenisation
from tests.matching.support import DOMAIN, PIECES

TOKENIZER = PreTrainedTokenizerFast(tokenizer_object=train(), eos_token="<|im_end|>")
MERGES = TokenDomain.from_pretrained(TOKENIZER)
CANONICAL = Tokenisation.of(MERGES, TOKENIZER)
LONGEST = Tokenisation(DOMAIN)


def pieces(domain, tokens):
    return [domain.token_bytes(token) for token in tokens]


def test_longest_match_without_a_tokenizer():
    assert pieces(DOMAIN, LONGEST.split(b'{"ab":')) == [b'{"', b"ab", b'":']
    assert pieces(DOMAIN, LONGEST.split(b"a\xfeb")) == [b"a"], "up to the first byte that no token has"


def test_what_depends_on_the_ending_is_left_out():
    assert {b"a", b"aa", b"ab"} <= set(PIECES)
    assert pieces(DOMAIN, LONGEST.settled(b"", b"{a", [b"a", b"1"])) == [b"{"]
    assert pieces(DOMAIN, LONGEST.settled(b"", b"{a", [b"1"])) == [b"{", b"a"]
    assert pieces(DOMAIN, LONGEST.settled(b"", b"{a", [b""])) == [b"{", b"a"]


@given(st.text('{}[]:," abcdefgh\n1é', max_size=30))
def test_the_tokenizers_own_merges(text):
    assert CANONICAL.split(text.encode()) == TOKENIZER.encode(text, add_special_tokens=False)


def test_merges_are_not_longest_matches():
    """Else the tests of the tokenizer's merges would show nothing."""
    greedy = Tokenisation(MERGES)
    words = [" remember", " something", " together", '": ', " understand", " question", "wonderful", " everything"]
    assert any(greedy.split(word.encode()) != CANONICAL.split(word.encode()) for word in words)


@given(st.text('{}":, ab1\n', min_size=1, max_size=20), st.data())
def test_settled_tokens_are_those_of_the_whole_text(text, data):
    """Given what was written, in whole tokens, and one byte of what follows."""
    tokens = TOKENIZER.encode(text, add_special_tokens=False)
    cut = data.draw(st.integers(0, len(tokens)))
    before, rest = (b"".join(pieces(MERGES, part)) for part in (tokens[:cut], tokens[cut:]))
    settled = CANONICAL.settled(before, rest[:-1], [rest[-1:]])
    assert settled == tokens[cut : cut + len(settled)]
    assert len(tokens) - cut - len(settled) <= 1


def test_a_boundary_that_the_tokenizer_would_not_make():
    whole = CANONICAL.split(b" the")
    assert len(whole) == 1
    assert CANONICAL.settled(b" t", b"he ", [b"a"]) == CANONICAL.settled(b"", b"he ", [b"a"]) != []


@pytest.mark.parametrize(
    "encode", [lambda text: [0], lambda text: [MERGES.control_id("<|im_end|>")], lambda text: [10**9]]
)
def test_a_tokenizer_that_writes_something_else_is_not_believed(encode):
    assert b"".join(pieces(MERGES, Tokenisation(MERGES, encode).split(b'{"a'))) == b'{"a'


def test_text_that_ends_inside_a_character():
    assert b"".join(pieces(MERGES, CANONICAL.split("é".encode()[:1]))) == "é".encode()[:1]
