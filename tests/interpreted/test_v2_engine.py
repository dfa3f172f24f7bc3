"""The whole engine on vLLM's GPU runner (V2), its Triton kernels interpreted: constrained, with drafts."""

import re

import pytest

REGEX = "(red|green|blue){1,6}"
MTP = {"method": "mtp", "num_speculative_tokens": 2}

RUNS = {
    "n-gram": ({"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_min": 1}, False),
    "MTP, greedy drafts, asynchronous scheduling": (MTP, True),
    "MTP, sampled drafts": (MTP | {"draft_sample_method": "probabilistic"}, False),
}


@pytest.mark.parametrize("run", RUNS)
def test_constrained_requests(tiny_model, run):
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    speculative_config, asynchronous = RUNS[run]
    llm = LLM(
        str(tiny_model),
        max_model_len=256,
        max_num_seqs=4,
        enforce_eager=True,
        enable_prefix_caching=False,
        async_scheduling=asynchronous,
        speculative_config=speculative_config,
        disable_log_stats=False,
    )
    try:
        constraint = StructuredOutputsParams(regex=REGEX)
        params = [
            SamplingParams(temperature=temperature, seed=seed, max_tokens=24, structured_outputs=constraint)
            for seed, temperature in enumerate([1.0, 1.0, 0.0])
        ]
        params.append(SamplingParams(temperature=1.0, seed=9, max_tokens=8))
        outputs = [request.outputs[0] for request in llm.generate(["red blue red blue"] * 4, params)]
        for output in outputs[:3]:
            complete = re.fullmatch(REGEX, output.text)
            assert complete or output.finish_reason == "length", output.text
            assert output.constraint["complete"] == bool(complete)
        assert outputs[3].token_ids, "the unconstrained neighbour ran"
        drafts = sum(metric.value for metric in llm.get_metrics() if metric.name == "vllm:spec_decode_num_draft_tokens")
        assert drafts > 0
        if "MTP" in run:
            assert sum(output.constraint["illegal_drafts"] for output in outputs[:3]) > 0, "illegal drafts are kept"
    finally:
        llm.llm_engine.engine_core.shutdown()
