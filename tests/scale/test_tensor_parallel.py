"""One model on two ranks, each a process with samplers of its own: both must draw the same tokens, always."""

import os

import pytest

from tests.engine.engine_process import EngineProcess
from tests.oracles.languages import LANGUAGES

pytestmark = pytest.mark.engine

RANKS = 2
MAX_TOKENS = 60
FREE = {"prompt": "Once upon a time", "options": {"max_tokens": 30}}
MTP = {"method": "mtp", "num_speculative_tokens": 3}
SETUPS = {
    "mtp, sampled": {"speculative_config": {**MTP, "draft_sample_method": "probabilistic"}},
    "mtp, greedy": {"speculative_config": MTP},
    "ngram": {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}},
    "no drafts": {},
}
ALL = bool(os.environ.get("INFERNIX_TEST_SCALE"))


@pytest.fixture(scope="module", params=list(SETUPS) if ALL else list(SETUPS)[:1])
def engine(request, tiny_model):
    process = EngineProcess(
        str(tiny_model),
        environment={"INFERNIX_NGRAM_MIN_MATCH": "2", "INFERNIX_NGRAM_COPIES": "1"},
        tensor_parallel_size=RANKS,
        worker_extension_cls="tests.scale.rank_trace.RankTrace",
        **SETUPS[request.param],
    )
    process.drafts = bool(SETUPS[request.param])
    process.ranks = process.call(on_every_rank, "begin_trace")
    yield process
    process.close()


def on_every_rank(llm, method, *arguments):
    return llm.collective_rpc(method, args=arguments)


def spoil(llm, prompt):
    return llm.collective_rpc("spoil", args=(llm.get_tokenizer().encode(prompt) if prompt else [],))


def constrained(kind, **options):
    language = LANGUAGES[kind]
    return {
        "prompt": f"Write a {kind}. Write a {kind}.",
        "structured": {language.field: language.value},
        "options": {"max_tokens": min(language.max_tokens, MAX_TOKENS), **options},
    }


def test_every_rank_has_the_plugin_and_the_settings_of_the_front(engine):
    assert len(engine.ranks) == RANKS
    for rank in engine.ranks:
        assert rank["samplers"][0] == "GuardedSampler"
        assert rank["samplers"][1] == "ExactRejectionSampler" or not engine.drafts
        assert rank["settings"]["ngram_min_match"] == 2
        assert rank["settings"]["ngram_copies"] is True


def test_ranks_draw_the_same_tokens(engine):
    requests = [FREE, {**FREE, "options": {"max_tokens": 30, "temperature": 0}}]
    requests += [constrained(kind) for kind in LANGUAGES]
    requests += [constrained("json_schema", temperature=0.0), constrained("grammar", seed=7)]
    answers = engine.generate(requests)
    for request, (answer,) in zip(requests, answers, strict=True):
        if "structured" in request:
            (field,) = request["structured"]
            language = next(one for one in LANGUAGES.values() if one.field == field)
            language.check(answer["text"], answer["finish_reason"])
            assert answer["constraint"]["mask_positions"] > 0
            assert answer["constraint"]["terminated"] == (answer["finish_reason"] == "stop")
    first, *others = engine.call(on_every_rank, "steps")
    for other in others:
        assert other == first
    drafted = sum(len(ids) for _, drafts, _, _ in first for ids in drafts.values())
    marked = sum(bool(marks) for _, _, marks, _ in first)
    assert bool(drafted) == bool(marked) == engine.drafts, "the drafts of the grammar are marked for every rank"


def test_a_row_that_fails_on_the_ranks_ends_its_request_alone(engine):
    broken = {**constrained("regex"), "prompt": "A prompt of its own"}
    engine.call(spoil, broken["prompt"])
    (failed,), (fine,) = engine.generate([broken, constrained("choice")])
    engine.call(spoil, "")
    assert failed["finish_reason"] == "error"
    assert failed["constraint"]["error"]["type"] == "NonFiniteLogits"
    LANGUAGES["choice"].check(fine["text"], fine["finish_reason"])
