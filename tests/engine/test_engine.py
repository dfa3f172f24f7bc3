"""Every constraint kind through the real engine: with and without speculation, greedy and sampled, alone and mixed."""

import json

import pytest

from tests.engine.engine_process import EngineProcess
from tests.oracles.languages import LANGUAGES

pytestmark = pytest.mark.engine

SPECULATION = {
    "none": None,
    "mtp1": {"method": "mtp", "num_speculative_tokens": 1},
    "mtp3": {"method": "mtp", "num_speculative_tokens": 3},
    "ngram": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 1},
}
TOGETHER = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
"""The engine core in the front end's process, which is how some users embed it; the plugin must be right in both."""
ENVIRONMENT = {"none": TOGETHER, "mtp1": TOGETHER, "mtp3": {}, "ngram": TOGETHER}

PROMPT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


@pytest.fixture(scope="module", params=SPECULATION)
def engine(request, tiny_model):
    speculation = SPECULATION[request.param]
    arguments = {"speculative_config": speculation} if speculation else {}
    process = EngineProcess(str(tiny_model), environment=ENVIRONMENT[request.param], **arguments)
    process.speculative = speculation is not None
    yield process
    process.close()


def constrained(kind, *, temperature, seed=0, **options):
    language = LANGUAGES[kind]
    return {
        "prompt": PROMPT.format(f'Write {kind}: {{"name": "Ada", "age": 3, "tags": ["red"]}} 2024-01-01 north1'),
        "structured": {language.field: language.value},
        "options": {"temperature": temperature, "seed": seed, "max_tokens": language.max_tokens, **options},
    }


def free(*, temperature, seed=0):
    return {
        "prompt": PROMPT.format("Tell me about the river."),
        "options": {"temperature": temperature, "seed": seed, "max_tokens": 40},
    }


@pytest.mark.parametrize("temperature", [0.0, 1.0], ids=["greedy", "sampled"])
@pytest.mark.parametrize("kind", LANGUAGES)
def test_alone(engine, kind, temperature):
    ((completion,),) = engine.generate([constrained(kind, temperature=temperature)])
    LANGUAGES[kind].check(completion["text"], completion["finish_reason"])
    record = completion["constraint"]
    assert record["kind"] == kind
    assert record["branch"] == ("content" if completion["text"] else "undecided")
    assert record["terminated"] == (completion["finish_reason"] == "stop")
    if record["terminated"]:
        assert record["complete"]
    assert record["mask_positions"] >= len(completion["token_ids"])


@pytest.mark.parametrize("temperature", [0.0, 1.0], ids=["greedy", "sampled"])
def test_mixed_with_unconstrained_requests(engine, temperature):
    kinds = [kind for kind in LANGUAGES for _ in range(3)]
    requests = []
    for index, kind in enumerate(kinds):
        requests.append(constrained(kind, temperature=temperature, seed=index))
        if index % 3 == 0:
            requests.append(free(temperature=temperature, seed=index))
    outputs = engine.generate(requests)
    illegal = 0
    for request, (completion,) in zip(requests, outputs, strict=True):
        if "structured" not in request:
            assert completion["constraint"] is None
            assert completion["finish_reason"] in ("stop", "length")
            assert completion["token_ids"]
            continue
        record = completion["constraint"]
        LANGUAGES[record["kind"]].check(completion["text"], completion["finish_reason"])
        illegal += record["illegal_drafts"]
    # Without illegal drafts the run would not show that none of them is ever emitted.
    assert (illegal > 0) == engine.speculative


def test_several_outputs_of_one_request(engine):
    ((*completions,),) = engine.generate([constrained("regex", temperature=1.0, n=4)])
    assert len(completions) == 4
    for completion in completions:
        LANGUAGES["regex"].check(completion["text"], completion["finish_reason"])


def test_a_bad_constraint_is_refused_and_the_engine_goes_on(engine):
    bad = constrained("regex", temperature=0.0)
    bad["structured"] = {"regex": "(unclosed"}
    with pytest.raises(RuntimeError, match="ConstraintRefused"):
        engine.generate([bad])
    ((completion,),) = engine.generate([constrained("choice", temperature=0.0)])
    assert completion["text"] in LANGUAGES["choice"].value


def test_options_that_leave_nothing_of_a_structural_tag_end_it_alone(engine):
    """Where the constraint is the user's own they are refused; a tag may come from a tool parser of vLLM's."""
    prompt = PROMPT.format("Only.")
    choice = {"prompt": prompt, "structured": {"choice": ["~^"]}, "options": {"temperature": 0.0}}
    ((written,),) = engine.generate([choice])
    first, second, _ = written["token_ids"]
    tag = {"structural_tag": json.dumps({"type": "structural_tag", "format": {"type": "const_string", "value": "~^"}})}
    impossible = [{"allowed_token_ids": [first]}, {"bad_words": ["^"]}, {"logit_bias": {second: float("-inf")}}]
    asked = [
        {"prompt": prompt, "structured": tag, "options": {"temperature": 1.0, "max_tokens": 8, **options}}
        for options in (*impossible, {"min_tokens": 6}, {})
    ]
    *failed, (early,), (other,) = engine.generate(asked)
    for (completion,) in failed:
        assert completion["finish_reason"] == "error"
        assert completion["token_ids"] == [first]
        error = completion["constraint"]["error"]
        assert error["type"] == "ConstraintDeadEnd"
        assert error["message"].startswith("After 1 output tokens, the sampling options of the request forbid")
    for completion in (early, other):  # min_tokens gives way where nothing but the end is left
        assert (completion["text"], completion["finish_reason"]) == ("~^", "stop")


@pytest.mark.parametrize("engine", ["none"], indirect=True)
def test_the_disabled_plugin_leaves_the_engine_as_it_was(engine, tiny_model):
    requests = [free(temperature=0.0), constrained("regex", temperature=0.0)]
    (ours,), _ = engine.generate(requests)
    disabled = EngineProcess(str(tiny_model), environment={**TOGETHER, "INFERNIX_DISABLE": "1"})
    try:
        (theirs,), (native,) = disabled.generate(requests)
    finally:
        disabled.close()
    assert theirs["constraint"] == "absent"
    assert theirs["token_ids"] == ours["token_ids"]
    LANGUAGES["regex"].check(native["text"], native["finish_reason"])
