"""The law of a step's output, computed exactly: every cell of the uniforms is tried once, so there is no chance in it.

All weights are sixths, and q never is 4/6 or 5/6, so every p / q is a multiple of 1/6 and the running totals of p and
of the residual are multiples of 1/60. The midpoints of so many cells per uniform then count every outcome exactly.
"""

import itertools
import random
from collections import Counter, defaultdict
from fractions import Fraction

import numpy as np
import pytest
import torch

from infernix_plugin import ConstraintCompiler, OutputConstraint, TokenDomain
from infernix_plugin.spec_decode import sampler as sampler_module
from infernix_plugin.spec_decode.proposal import Proposal, ProposalLedger
from tests.spec_decode.sampler_step import options, random_options, run

TOTAL = 6
ACCEPTANCE_CELLS, TOKEN_CELLS = 6, 60
VOCABULARY = 40
LEGAL = (3, 17, 21, 39)
ILLEGAL = 8
"""Proposed, and never allowed."""
IDS = (*LEGAL, ILLEGAL)
CANDIDATES = (21, 8, 3, 0, 1, 2, 17, 39, 30, 31, 32, 33, 34, 35, 36, 37)
"""Of a sparse proposal, not in the order of the ids."""


def composition(source, parts):
    cuts = sorted(source.randrange(TOTAL + 1) for _ in range(parts - 1))
    return [after - before for before, after in itertools.pairwise([0, *cuts, TOTAL])]


def proposal_weights(source):
    while True:
        weights = composition(source, len(IDS))
        if not {4, 5} & set(weights):
            return weights


class Model:
    """p and q in sixths over IDS after every prefix, indices into IDS: of two draft positions, and p of the bonus."""

    def __init__(self, seed):
        source = random.Random(seed)
        prefixes = [prefix for length in range(3) for prefix in itertools.product(range(len(IDS)), repeat=length)]
        self._p = {prefix: [*composition(source, len(LEGAL)), 0] for prefix in prefixes}
        self.q = {prefix: proposal_weights(source) for prefix in prefixes}

    def p(self, prefix, token):
        return Fraction(self._p[prefix][token], TOTAL)

    def logits(self, drafts):
        """float[len(drafts) + 1, V]."""
        rows = torch.full((len(drafts) + 1, VOCABULARY), -float("inf"))
        for length, row in enumerate(rows):
            row[list(IDS)] = torch.tensor(self._p[drafts[:length]], dtype=torch.float32).log()
        return rows

    def best(self, prefix):
        return int(np.argmax(self._p[prefix]))


def q_row(weights, ids=range(VOCABULARY)):
    held = dict(zip(IDS, weights, strict=True))
    return [held.get(token, 0) / TOTAL for token in ids]


def sampled(kind, weights, requests):
    """q as the sampler gets it: of each of ``requests`` requests, for drafts drawn from these ``weights``."""
    if kind == "dense":
        return torch.tensor([q_row(each) for each in weights]).repeat(requests, 1)
    probabilities = torch.tensor([[q_row(each, CANDIDATES) for each in weights]]).expand(requests, -1, -1)
    ledger, names = ProposalLedger(), [str(number) for number in range(requests)]
    ledger.record(names, Proposal(probabilities, torch.tensor(CANDIDATES).expand(probabilities.shape)))
    return ledger.step(names, [len(weights)] * requests, {})


def cells(drafts):
    """Midpoints of the cells of the uniforms of a request with so many drafts: float64[cells, drafts + 1]."""
    sizes = [ACCEPTANCE_CELLS] * drafts + [TOKEN_CELLS]
    return torch.tensor(list(itertools.product(*((np.arange(size) + 0.5) / size for size in sizes))))


@pytest.fixture
def law_of(monkeypatch):
    """Return a function for the exact law of verification: output (indices into IDS) -> probability."""

    def law_of(model, drafts, q=None):
        grid = cells(len(drafts))
        monkeypatch.setattr(sampler_module, "_uniforms", lambda layout, metadata: grid.flatten())
        batch = len(grid)
        result = run(
            [[IDS[token] for token in drafts]] * batch,
            model.logits(drafts).repeat(batch, 1),
            random_options([1.0] * batch),
            q and q(batch),
        )
        assert not result.failures
        counts = Counter(map(tuple, result.tokens))
        return {
            tuple(map(IDS.index, output)): Fraction(count, batch) for output, count in counts.items()
        }  # an id outside IDS raises

    return law_of


def assert_the_output_has_the_law_of_p(model, found, length=3):
    """Output that ends before ``length`` goes on with p."""
    assert sum(found.values()) == 1
    for whole in itertools.product(range(len(LEGAL)), repeat=length):
        chances = [model.p(whole[:position], token) for position, token in enumerate(whole)]
        actual = sum(
            found.get(whole[:written], 0) * np.prod(chances[written:], dtype=object, initial=Fraction(1))
            for written in range(1, length + 1)
        )
        assert actual == np.prod(chances, dtype=object), whole


PAIRS = list(itertools.product(range(len(IDS)), repeat=2))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_over_sampled_drafts_three_tokens_have_exactly_the_law_of_the_target(kind, seed, law_of):
    """Rejection at each draft, an illegal draft at each position, and the bonus."""
    model = Model(seed)
    found = defaultdict(Fraction)
    for first, second in PAIRS:
        chance = Fraction(model.q[()][first] * model.q[first,][second], TOTAL**2)
        if not chance:
            continue
        weights = [model.q[()], model.q[first,]]
        law = law_of(model, (first, second), lambda batch, weights=weights: sampled(kind, weights, batch))
        for output, probability in law.items():
            found[output] += chance * probability
    assert_the_output_has_the_law_of_p(model, found)


@pytest.mark.parametrize("drafts", PAIRS)
def test_every_one_hot_draft_leaves_the_law_alone(drafts, law_of):
    """Such a draft is a function of the prefix, so the law must be right for each draft, not only on average."""
    model = Model(17)
    assert_the_output_has_the_law_of_p(model, law_of(model, drafts))


def test_a_replaced_position_of_a_sampled_proposal_is_one_hot(law_of):
    """A forced draft before a sampled one: q of the first is one-hot, whatever the drafter's had been."""
    model, forced = Model(5), 1
    assert model.q[()][forced] < TOTAL

    def marked(batch):
        ledger, names = ProposalLedger(), [str(number) for number in range(batch)]
        probabilities = torch.tensor([q_row(model.q[()]), q_row(model.q[forced,])])
        ledger.record(names, Proposal(probabilities.expand(batch, -1, -1)))
        return ledger.step(names, [2] * batch, dict.fromkeys(names, 0b01))

    found = defaultdict(Fraction)
    for second, weight in enumerate(model.q[forced,]):
        if weight:
            for output, probability in law_of(model, (forced, second), marked).items():
                found[output] += probability * Fraction(weight, TOTAL)
    assert_the_output_has_the_law_of_p(model, found)


def test_unequal_counts_with_greedy_requests_between_them(monkeypatch):
    """Every random request of the batch has the law that it has alone, and every greedy one its one output."""
    model, pair = Model(23), (0, 3)
    weights = [model.q[()], model.q[pair[:1]]]
    grid, alone = cells(2), cells(0)
    best, wrong = model.best(()), len(LEGAL)
    after = model.best((best,))
    drafts, logits, uniforms, q, temperatures, expected = [], [], [], [], [], []
    for number, cell in enumerate(grid):
        guess = best if number % 2 else wrong
        drafts += [[IDS[token] for token in pair], [IDS[guess]], []]
        logits += [model.logits(pair), model.logits((guess,)), model.logits(())]
        uniforms += [cell, torch.zeros(2), alone[number % TOKEN_CELLS]]
        q += [*map(q_row, weights), q_row([1, 1, 1, 1, 2])]  # of the greedy draft: what the drafter's softmax may be
        temperatures += [1.0, 0.0, 1.0]
        expected.append([IDS[best], IDS[after]] if number % 2 else [IDS[best]])

    def step(drafts, logits, temperatures, q, uniforms):
        monkeypatch.setattr(sampler_module, "_uniforms", lambda layout, metadata: torch.cat(uniforms))
        return run(drafts, torch.cat(logits), random_options(temperatures), torch.tensor(q)).tokens

    mixed = step(drafts, logits, temperatures, q, uniforms)
    assert mixed[1::3] == expected
    single = Counter(tokens[0] for tokens in mixed[2::3])
    assert {IDS.index(token): Fraction(count, len(grid)) for token, count in single.items()} == {
        token: model.p((), token) for token in range(len(LEGAL)) if model.p((), token)
    }
    of_pairs = [row for number, row in enumerate(q) if number % 3 != 2]
    assert mixed[0::3] == step(drafts[0::3], logits[0::3], temperatures[0::3], of_pairs, uniforms[0::3])


def test_a_greedy_request_takes_no_notice_of_q():
    """vLLM's probabilistic drafter hands out a softmax for greedy requests too, although their draft is its argmax."""
    model = Model(2)
    first = model.best(())
    second = next(token for token in range(len(LEGAL)) if token != model.best((first,)))
    drafts, logits = [IDS[first], IDS[second]], model.logits((first, second))
    expected = [IDS[first], IDS[model.best((first,))]]
    q = torch.tensor([q_row([1, 1, 1, 1, 2]), q_row([3, 3, 0, 0, 0])])
    for proposal in (None, q, torch.zeros_like(q)):
        assert run([drafts], logits, options(1), proposal).tokens == [expected]
        both = None if proposal is None else proposal.repeat(2, 1)
        mixed = run([drafts, drafts], logits.repeat(2, 1), random_options([0.0, 1.0]), both)
        assert mixed.tokens[0] == expected


PIECES = [b"a", b"b", b"ab", b"", b"x"]
A, B, AB, END, X = range(len(PIECES))
CHANCES = {A: Fraction(2, 6), B: Fraction(1, 6), AB: Fraction(1, 6), END: Fraction(2, 6)}
"""Under a mask of a, b, ab and the end."""


@pytest.mark.parametrize("drafts", [[A, END, B], [END, A, A], [B, X, END], [AB, B, END]])
def test_an_end_inside_the_drafts(drafts, monkeypatch):
    """Up to the end token the law is p under the masks of a session; what comes behind it nobody reads."""
    domain = TokenDomain(PIECES, control={"<end>": END}, stop=[END])
    compiled = ConstraintCompiler(domain).compile(OutputConstraint.regex("(a|b)*"))
    rows = np.zeros((len(drafts) + 1, 1), dtype=np.int32)
    compiled.session().lookahead(drafts, rows)
    legal = torch.tensor([[bool(row[0] >> token & 1) for token in range(len(PIECES))] for row in rows])
    logits = torch.tensor([2.0, 1.0, 1.0, 2.0, 6.0]).log().repeat(len(rows), 1).masked_fill(~legal, -float("inf"))
    grid = cells(len(drafts))
    monkeypatch.setattr(sampler_module, "_uniforms", lambda layout, metadata: grid.flatten())
    batch = len(grid)
    found = Counter()
    for tokens in run([drafts] * batch, logits.repeat(batch, 1), random_options([1.0] * batch)).tokens:
        visible = tokens[: tokens.index(END) + 1] if END in tokens else tokens
        found[tuple(visible)] += Fraction(1, batch)
    expected, reached = Counter(), Fraction(1)
    for position, draft in enumerate([*drafts, None]):
        before = tuple(drafts[:position])
        for token, chance in CHANCES.items():
            if token != draft:
                expected[*before, token] += reached * chance
        reached *= CHANCES.get(draft, 0)
        if draft == END:
            expected[*before, END] += reached
            break
    assert found == expected
