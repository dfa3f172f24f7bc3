"""What the masks of a request may take, on both sides of both settings."""

import pytest

from infernix_plugin import ConstraintCompiler, OutputConstraint, TokenDomain
from infernix_plugin.errors import ConstraintTooLarge
from infernix_plugin.grammar.options import GrammarOptions
from infernix_plugin.matching.engines import meter


@pytest.fixture
def masks(monkeypatch):
    """Pay for masks that take so many seconds each, under ``max_mask_seconds`` 0.25 and ``max_excess_seconds`` 1."""

    def run(*seconds):
        allowance = meter.Meter(meter.Allowance(0.25, 1.0))
        for taken in seconds:
            clock = iter([0.0, taken])
            monkeypatch.setattr(meter, "thread_time", lambda clock=clock: next(clock))
            allowance.stop(allowance.start())

    return run


def test_any_number_of_masks_at_the_mean(masks):
    masks(*[0.25] * 100)


def test_masks_over_the_mean_use_the_excess_up(masks):
    masks(*[0.5] * 4)
    with pytest.raises(ConstraintTooLarge, match=r"max_mask_seconds and max_excess_seconds allow, which are 0\.25 s"):
        masks(*[0.5] * 5)


def test_one_mask_may_take_both(masks):
    masks(1.25)
    with pytest.raises(ConstraintTooLarge):
        masks(1.5)


def test_quick_masks_save_no_more_than_the_excess(masks):
    masks(*[0.0] * 100, 1.25)
    with pytest.raises(ConstraintTooLarge):
        masks(*[0.0] * 100, 1.5)


def test_a_long_text_under_an_ambiguous_grammar_is_refused():
    domain = TokenDomain([bytes([byte]) for byte in range(256)], stop=[0])
    ambiguous = OutputConstraint.grammar('root ::= "(" root ")" | . root . | . root | ""')
    compiled = ConstraintCompiler(domain, options=GrammarOptions(max_excess_seconds=0.2)).compile(ambiguous)
    assert compiled.engine == "xgrammar"
    compiled.session(b"a" * 100)
    with pytest.raises(ConstraintTooLarge, match="max_excess_seconds"):
        compiled.session(b"a" * 1_000_000)
