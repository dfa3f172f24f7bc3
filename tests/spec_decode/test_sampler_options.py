"""Every sampling option at once, at the hypothetical prefix, against plain float64 arithmetic for one row at a time."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from infernix_plugin.spec_decode import sampler as sampler_module
from infernix_plugin.spec_decode.proposal import Proposal, ProposalLedger
from tests.spec_decode.sampler_step import noise, options, processors, random_options, run

VOCABULARY = 24
STOP = 23
PROMPT_PADDING = VOCABULARY
INF = float("inf")


def random_request(seed):
    """A request with every option set; temperature 0 for every third."""
    source = random.Random(seed)
    return SimpleNamespace(
        temperature=0.0 if seed % 3 == 0 else source.uniform(0.5, 1.5),
        top_k=source.choice([VOCABULARY, 9, 5, 3]),
        top_p=source.choice([1.0, 0.9, 0.6]),
        min_p=source.choice([0.0, 0.02, 0.3]),
        repetition=source.uniform(0.8, 1.6),
        frequency=source.uniform(-0.5, 0.5),
        presence=source.uniform(-0.5, 0.5),
        logit_bias={source.randrange(VOCABULARY): source.uniform(-3, 3) for _ in range(3)},
        min_tokens=source.randrange(6),
        bad_words=[[source.randrange(VOCABULARY) for _ in range(length)] for length in (1, 2, 2, 3)],
        forbidden=source.sample(range(VOCABULARY - 1), 4),
        masked=[source.sample(range(VOCABULARY), 6) for _ in range(4)],
        prompt=[source.randrange(VOCABULARY) for _ in range(source.randrange(1, 5))],
        written=[source.randrange(VOCABULARY) for _ in range(source.randrange(4))],
        drafts=source.randrange(4),
    )


def expected(request, logits, before):
    """log p over the vocabulary after ``before``: constraint, options that move the argmax, temperature, truncation."""
    row = logits.copy()
    row[request.forbidden] = -INF
    output = request.written + before
    for word in request.bad_words:
        if output[len(output) - len(word) + 1 :] == word[:-1] and len(output) >= len(word) - 1:
            row[word[-1]] = -INF
    if len(output) < request.min_tokens:
        row[STOP] = -INF
    for token, bias in request.logit_bias.items():
        row[token] += bias
    for token in range(VOCABULARY):
        if token in request.prompt or token in output:
            row[token] *= 1 / request.repetition if row[token] > 0 else request.repetition
        row[token] -= request.frequency * output.count(token) + request.presence * (token in output)
    if request.temperature == 0:
        return row - np.log(np.exp(row - row.max()).sum()) - row.max()
    row /= request.temperature
    p = np.exp(row - row.max())
    p[p < request.min_p * p.max()] = 0
    p[p < np.sort(p)[-request.top_k]] = 0
    p /= p.sum()
    best = np.argsort(-p)
    # A token is in the nucleus unless the tokens before it already hold top_p.
    p[best[np.concatenate(([0.0], np.cumsum(p[best])[:-1])) >= request.top_p]] = 0
    with np.errstate(divide="ignore"):
        return np.log(p / p.sum())


@pytest.fixture
def uniform(monkeypatch):
    """Return a function that fixes all uniforms of the next step at one value; 0 accepts whatever is possible."""

    def fix(value):
        def fixed(layout, _):
            return torch.full((len(layout.request),), value, dtype=torch.float64)

        monkeypatch.setattr(sampler_module, "_uniforms", fixed)

    return fix


def metadata_of(requests, **changes):
    longest = max(len(request.prompt) for request in requests)
    written = [request.written for request in requests]

    def tensor(name):
        return torch.tensor([getattr(request, name) for request in requests])

    def per_request(name):
        return [getattr(request, name) for request in requests]

    forbidden = torch.zeros(len(requests), VOCABULARY, dtype=torch.bool)
    for row, request in zip(forbidden, requests, strict=True):
        row[request.forbidden] = True
    return random_options(
        per_request("temperature"),
        top_k=tensor("top_k").int(),
        top_p=tensor("top_p"),
        no_penalties=False,
        prompt_token_ids=torch.tensor(
            [request.prompt + [PROMPT_PADDING] * (longest - len(request.prompt)) for request in requests]
        ),
        output_token_ids=written,
        repetition_penalties=tensor("repetition"),
        frequency_penalties=tensor("frequency"),
        presence_penalties=tensor("presence"),
        bad_words_token_ids={index: request.bad_words for index, request in enumerate(requests)},
        allowed_token_ids_mask=forbidden,
        logitsprocs=processors(
            written,
            min_p=per_request("min_p"),
            logit_bias=per_request("logit_bias"),
            min_tokens=per_request("min_tokens"),
            stop_token_ids=[[STOP]] * len(requests),
        ),
        **changes,
    )


@pytest.mark.parametrize("first_seed", range(0, 60, 6))
def test_every_option_sees_the_drafts_before_its_row(first_seed, uniform):
    """Six requests of 0 to 3 drafts, all of them possible and so accepted: the p of every row is looked at."""
    uniform(0.0)
    requests = [random_request(first_seed + index) for index in range(6)]
    source = random.Random(first_seed)
    rows, drafts, laws = [], [], []
    for index, request in enumerate(requests):
        logits = noise(request.drafts + 1, seed=100 * first_seed + index, size=VOCABULARY)
        for row, masked in zip(logits, request.masked, strict=False):
            row[masked] = -INF
        before = []
        for row in logits.double().numpy():
            laws.append(expected(request, row, before))
            best = [int(laws[-1].argmax())]
            before.append(source.choice(best if request.temperature == 0 else np.flatnonzero(np.isfinite(laws[-1]))))
        rows.append(logits)
        drafts.append([int(token) for token in before[: request.drafts]])
    metadata = metadata_of(requests, max_num_logprobs=VOCABULARY)
    result = run(drafts, torch.cat(rows), metadata, mode="processed_logprobs")
    assert not result.failures
    assert [tokens[:-1] for tokens in result.tokens] == drafts
    assert result.logprobs.cu_num_generated_tokens == [0, *np.cumsum([request.drafts + 1 for request in requests])]
    for ids, logprobs, law in zip(result.logprobs.logprob_token_ids, result.logprobs.logprobs, laws, strict=True):
        np.testing.assert_allclose(logprobs, law[ids], atol=2e-5)
    assert sorted(result.logprobs.logprob_token_ids[0, 1:]) == list(range(VOCABULARY)), "nothing is left out"


def test_min_p_is_a_share_of_the_best_legal_token(uniform):
    """The masked token would set the bar so high that nothing but it is left."""
    uniform(0.99)
    logits = torch.tensor([[9.0, 2.0, 1.9, -5.0]])
    logits[0, 0] = -INF
    metadata = random_options([1.0], logitsprocs=processors([[]], min_p=[0.5]))
    assert run([[]], logits, metadata).tokens == [[2]], "0.9 of the best; the last token is below the half of it"


@pytest.mark.parametrize(
    ("minimum", "written", "tokens"),
    [
        (0, [], [1, STOP, 2]),  # the end is accepted; the engine cuts behind it
        (1, [], [1, STOP, 2]),
        (2, [], [1, 5]),
        (4, [], [1, 5]),
        (4, [7, 7, 7], [1, STOP, 2]),
    ],
)
def test_a_stop_token_among_the_drafts_waits_for_min_tokens(minimum, written, tokens):
    logits = torch.zeros(3, VOCABULARY)
    logits[0, 1] = logits[2, 2] = 2.0
    logits[1, STOP], logits[1, 5] = 2.0, 1.0
    metadata = options(
        1, output_token_ids=[written], logitsprocs=processors([written], min_tokens=[minimum], stop_token_ids=[[STOP]])
    )
    assert run([[1, STOP]], logits, metadata).tokens == [tokens]


def test_a_logit_bias_holds_in_every_row_of_its_request_alone():
    logits = noise(5, seed=9)
    biased = logits.clone()
    biased[2:, 6] += 50.0
    best = biased.argmax(1).tolist()
    metadata = options(2, logitsprocs=processors([[], []], logit_bias=[None, {6: 50.0}]))
    assert run([best[:1], best[2:4]], logits, metadata).tokens == [best[:2], best[2:]]


MODES = {
    "raw_logits": lambda raw, processed: raw,
    "raw_logprobs": lambda raw, processed: raw.log_softmax(1),
    "processed_logits": lambda raw, processed: processed,
    "processed_logprobs": lambda raw, processed: processed.log_softmax(1),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("greedy", [True, False])
def test_log_probabilities_of_accepted_recovered_and_bonus_tokens(mode, greedy, uniform):
    """Request 0 has its second draft replaced, request 1 reaches the bonus, request 2 has no draft."""
    uniform(0.0)
    raw = noise(6, seed=4, size=VOCABULARY)
    raw[:, 20:] = -INF
    bias, temperature = 2.0, 0.0 if greedy else 0.8
    processed = raw.clone()
    processed[:, 3] += bias
    if not greedy:
        processed /= temperature
    # The uniform 0 draws the first token of the support; of a one-hot q's residual, the first that is not the draft.
    best = processed.argmax(1).tolist()
    accepted = best[0] if greedy else 7
    illegal = 21
    drafts = [[accepted, illegal], [best[3] if greedy else 11], []]
    ends = [best[1], best[4], best[5]] if greedy else [0, 0, 0]
    metadata = random_options(
        [temperature] * 3, max_num_logprobs=3, logitsprocs=processors([[], [], []], logit_bias=[{3: bias}] * 3)
    )
    result = run(drafts, raw, metadata, mode=mode)
    assert result.tokens == [[accepted, ends[0]], [drafts[1][0], ends[1]], [ends[2]]]
    rows = [0, 1, 3, 4, 5]
    values = MODES[mode](raw, processed)[rows]
    tokens = [token for of_request in result.tokens for token in of_request]
    assert result.logprobs.cu_num_generated_tokens == [0, 2, 4, 5]
    for index, (token, row) in enumerate(zip(tokens, values, strict=True)):
        top = row.topk(3)
        assert result.logprobs.logprob_token_ids[index].tolist() == [token, *top.indices.tolist()]
        np.testing.assert_allclose(result.logprobs.logprobs[index], [row[token], *top.values], atol=1e-5)
        assert result.logprobs.sampled_token_ranks[index] == int((row >= row[token]).sum())


def seeded(kind, place, neighbours):
    """Output of a request with seed 42 at ``place`` of a batch whose other requests have so many drafts each."""
    generator = torch.Generator().manual_seed(42)
    mine, outputs = noise(4, seed=77, size=VOCABULARY), []
    counts = [*neighbours[:place], 3, *neighbours[place:]]
    others = noise(sum(neighbours) + len(neighbours), seed=place, size=VOCABULARY)
    start = sum(neighbours[:place]) + place
    logits = torch.cat((others[:start], mine, others[start:]))
    candidates = torch.arange(16).expand(len(counts), 3, -1)
    q = torch.full((len(counts), 3, 16), 1 / 16)
    for _ in range(5):
        drafts = [[index % 16 for index in range(count)] for count in counts]
        if kind == "sparse":
            ledger, names = ProposalLedger(), [str(index) for index in range(len(counts))]
            ledger.record(names, Proposal(q, candidates))
            proposal = ledger.step(names, counts, {})
        else:
            dense = torch.full((sum(counts), VOCABULARY), 1 / VOCABULARY)
            proposal = dense if kind == "dense" else None
        generators = {place: generator, **{index: torch.Generator().manual_seed(1) for index in range(place)}}
        metadata = random_options([1.0] * len(counts), generators=generators)
        outputs.append(run(drafts, logits, metadata, proposal).tokens[place])
    return outputs


@pytest.mark.parametrize("kind", ["one-hot", "dense", "sparse"])
def test_a_seeded_request_repeats_its_steps_in_every_batch(kind):
    alone = seeded(kind, 0, [])
    assert len({tuple(output) for output in alone}) > 1, "steps go on with the stream, they do not start it again"
    torch.manual_seed(5)
    assert seeded(kind, 0, []) == alone
    assert seeded(kind, 2, [0, 3, 1]) == alone
    assert seeded(kind, 0, [2]) == alone
