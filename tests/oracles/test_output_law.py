"""The statistical oracle itself: laws that can be written down by hand, and chi-square tests with known answers."""

import math
import random

import pytest

from tests.oracles.output_law import (
    ChiSquare,
    FiniteLanguage,
    Setting,
    against_each_other,
    against_law,
    output_laws,
)
from tests.oracles.soak_languages import SOAK_LANGUAGES

A, B, AB, STOP = range(4)
UNCONSTRAINED = {A: 0.2, B: 0.1, AB: 0.3, STOP: 0.4}


class Letters:
    """What the oracle needs of a vocabulary: "a", "b", "ab" and one stop token."""

    def __init__(self):
        self.pieces = {A: "a", B: "b", AB: "ab"}
        self.stops = [STOP]

    def legal(self, prefix, strings):
        written = "".join(self.pieces[token] for token in prefix)
        rests = [string[len(written) :] for string in strings if string.startswith(written)]
        found = [token for token, piece in self.pieces.items() if any(rest.startswith(piece) for rest in rests)]
        return found + self.stops * ("" in rests)


def laws(strings, *settings, max_tokens=3):
    def model(prefixes, wanted):
        return [{token: math.log(UNCONSTRAINED[token]) for token in ids} for ids in wanted]

    return output_laws(FiniteLanguage(frozenset(strings), max_tokens), Letters(), model, settings)


def test_every_spelling_has_its_probability():
    (law,) = laws(["a", "ab"], Setting(1.0))
    # First "a" or "ab", 2 : 3; behind "a" the end or "b", 4 : 1; behind "ab" the end is certain.
    assert law == pytest.approx({(A, STOP): 0.4 * 0.8, (A, B, STOP): 0.4 * 0.2, (AB, STOP): 0.6})


def test_temperature_and_top_p_bear_on_legal_tokens_alone():
    (sharp, cut) = laws(["a", "ab"], Setting(0.5), Setting(1.0, 0.5))
    assert sharp[AB, STOP] == pytest.approx(9 / 13)
    assert cut == pytest.approx({(AB, STOP): 1.0})


def test_an_output_is_cut_at_the_limit():
    (law,) = laws(["ab" * 5], Setting(1.0), max_tokens=1)
    assert law == pytest.approx({(A,): 0.4, (AB,): 0.6})


def test_p_of_known_statistics():
    assert ChiSquare(10.828, 1).p == pytest.approx(0.001, rel=1e-3)
    assert ChiSquare(18.307, 10).p == pytest.approx(0.05, rel=1e-3)


def drawn(law, count, seed):
    return random.Random(seed).choices(list(law), list(law.values()), k=count)


def test_samples_of_a_law_pass_and_others_fail():
    law = {(1,): 0.5, (2,): 0.3, (3,): 0.15, (4,): 0.0499, (5,): 0.0001}
    other = {**law, (1,): 0.4, (2,): 0.4}
    right, again, wrong = drawn(law, 4000, 1), drawn(law, 4000, 2), drawn(other, 4000, 3)
    assert against_law(right, law).p > 0.01
    assert against_each_other(right, again).p > 0.01
    assert against_law(wrong, law).p < 1e-6
    assert against_each_other(right, wrong).p < 1e-3
    with pytest.raises(AssertionError, match="probability zero"):
        against_law([(6,)], law)


def test_rare_prefixes_stand_for_all_that_begins_with_them():
    law = {(1, 0): 0.5, (2,): 0.5}
    assert against_law([(1, 0)] * 50 + [(2, 3, 0)] * 30 + [(2, 4, 0)] * 20, law).statistic == 0


MEMBERS = {
    "choice": ("neutral", "neutrally"),
    "sentences": ("The tree is very old.", "The tree is very blue."),
    "date": ("2024-02-31T99:00", "2024-13-01"),
    "words": ("One two three four.", "One two three."),
    "version": ("v1.20.3-rc.1", "v1.2"),
    "any script": ("日本語です", "a1b2c"),
    "moves": ("[north1, ((east22))]", "[north1, ((east22)]"),
    "sum": ("1 + (2 + 33)", "1 + (2 +33)"),
    "json_object": ('{"a": [1]}', "[1]"),
    "json_schema": ('{"name": "A", "age": 1, "tags": ["red"]}', '{"name": "", "age": 1, "tags": ["red"]}'),
    "order": (
        '{"customer": "A", "items": [{"product": "book", "count": 1, "price": 0.5}], "paid": true}',
        '{"customer": "A", "items": [], "paid": true}',
    ),
    "either": ('{"kind": "b", "value": null}', '{"kind": "a", "value": null}'),
    "open": ('{"id": 1, "note": "", "x": true}', '{"id": 1, "note": "", "note": ""}'),
    "unique": ('{"tags": ["red", "blue"], "step": 25}', '{"tags": ["red", "red"], "step": 25}'),
}


@pytest.mark.parametrize("language", SOAK_LANGUAGES, ids=lambda language: language.name)
def test_the_soak_oracles_tell_members_from_others(language):
    member, other = MEMBERS[language.name]
    assert language.member(member)
    assert not language.member(other)
    assert all(language.prefix(member[:size]) for size in range(len(member)))
    if language.exact_prefix:
        assert not language.prefix(member + " 1")


def test_only_undeclared_names_may_occur_twice():
    languages = {language.name: language for language in SOAK_LANGUAGES}
    assert languages["open"].member('{"id": 1, "note": "", "x": true, "x": false}')
    assert not languages["open"].member('{"id": 1, "id": 2, "note": ""}')
    assert not languages["either"].member('{"kind": "a", "kind": "a", "text": "x"}')
