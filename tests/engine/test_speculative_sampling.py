"""With every proposer, the outputs of a constrained request are distributed as without speculation.

The law of the outputs is known exactly: every output of a small language is enumerated, with the probabilities that the
model itself gives to its tokens (``tests/oracles/output_law.py``). A bias that the sampler or the masks bring in shows
in a chi-square test against it, and in one against the outputs of the engine without speculation.
"""

import os
from collections import Counter

import pytest

from tests.engine.exactness import LANGUAGE, SETTINGS, Subject
from tests.engine.proposers import NONE, PROPOSERS, engine_arguments
from tests.engine.vllm_alone import install_repairs_only
from tests.oracles.output_law import against_each_other, against_law

pytestmark = pytest.mark.engine

IN_CI = ("n-gram copies, else MTP, sampled", "grammar, else n-gram copies, else DFlash2")
"""Between them, what each draft may be drawn from: all tokens, a few candidates, or one."""
ALL = bool(os.environ.get("INFERNIX_TEST_ALL_PROPOSERS"))
"""Minutes instead of two."""
SAMPLES = int(os.environ.get("INFERNIX_TEST_SAMPLES", "1500"))
"""Outputs for each proposer and setting."""
LEAST_P = 0.001
SEED_STEP = 10_000_000
"""Every engine has seeds of its own: with the same ones their first tokens were the same, not independent."""


@pytest.fixture(scope="module")
def models(tiny_model, tmp_path_factory):
    return tiny_model, tmp_path_factory.mktemp("drafts")


@pytest.fixture(scope="module")
def plain(models):
    """The laws, and the samples without speculation."""
    model, drafts = models
    subject = Subject(model, engine_arguments(NONE, drafts))
    try:
        laws = dict(zip(SETTINGS, subject.laws(), strict=True))
        samples = {name: subject.sample(setting, SAMPLES, seed=0) for name, setting in SETTINGS.items()}
        return laws, samples, subject.greedy()
    finally:
        subject.close()


@pytest.fixture(scope="module", params=PROPOSERS if ALL else IN_CI)
def subject(request, models):
    model, drafts = models
    subject = Subject(model, engine_arguments(request.param, drafts))
    subject.seed = SEED_STEP * (1 + list(PROPOSERS).index(request.param))
    yield subject
    subject.close()


def test_without_speculation(plain):
    laws, samples, _ = plain
    for setting, law in laws.items():
        assert sum(law.values()) == pytest.approx(1)
        assert against_law(samples[setting].outputs, law).p > LEAST_P, setting


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_law_of_the_outputs(subject, plain, setting):
    laws, samples, _ = plain
    sample = subject.sample(SETTINGS[setting], SAMPLES, seed=subject.seed)
    for text in {subject.vocabulary.written(output) for output in sample.outputs}:
        assert any(string.startswith(text) for string in LANGUAGE), text
    # Without these the test would not have judged the drafts at all.
    assert sample.illegal > SAMPLES // 20
    assert sample.accepted > SAMPLES // 100
    assert sample.drafted - sample.accepted - sample.illegal > SAMPLES // 20
    against = {
        "law": against_law(sample.outputs, laws[setting]),
        "plain": against_each_other(sample.outputs, samples[setting].outputs),
    }
    worst = min(against.values(), key=lambda test: test.p)
    assert worst.p > LEAST_P, (against, Counter(map(subject.vocabulary.written, sample.outputs)).most_common(20))


def test_greedy_outputs_are_the_same(subject, plain):
    *_, expected = plain
    found = subject.greedy()
    assert not [pair for pair in zip(expected, found, strict=True) if pair[0].differs(pair[1])]
    assert sum(one.tokens == other.tokens for one, other in zip(expected, found, strict=True)) > len(expected) // 2


@pytest.mark.skipif(not ALL, reason="takes one more engine, half a minute: INFERNIX_TEST_ALL_PROPOSERS=1")
def test_vllm_alone_is_biased(models, plain):
    """Negative control: the same samples, judged the same way, of an engine that drops illegal drafts."""
    model, drafts = models
    speculation = engine_arguments("MTP, sampled", drafts)["speculative_config"]
    subject = Subject(model, {"speculative_config": speculation}, install_repairs_only)
    try:
        sample = subject.sample(SETTINGS["T=1"], SAMPLES, seed=SEED_STEP // 2)
    finally:
        subject.close()
    laws, *_ = plain
    assert against_law(sample.outputs, laws["T=1"]).p < LEAST_P
