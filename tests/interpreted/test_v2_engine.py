"""The whole engine on vLLM's GPU runner (V2), its Triton kernels interpreted: constrained, with drafts."""

import json
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
        check_broken_rows(llm, params)
        check_options_that_leave_nothing(llm, params)
    finally:
        llm.llm_engine.engine_core.shutdown()


def check_broken_rows(llm, params):
    """From its second step on, the model gives NaN for the first request: it ends alone, with what it had.

    Constraints compile beside the engine, so that request may join after the last, unconstrained one.
    """
    runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
    sample, compute_logits = runner.sample, runner.model.compute_logits
    broken = f"{llm.request_counter.counter}-"
    seen, prompts_done = [], set()

    def sample_and_look(hidden_states, input_batch, grammar_output):
        seen[:] = [input_batch]
        return sample(hidden_states, input_batch, grammar_output)

    def compute_broken_logits(hidden_states):
        logits = compute_logits(hidden_states)
        batch = seen[0]
        for row, request in enumerate(batch.req_ids):
            if request.startswith(broken) and request in prompts_done:
                # All but the last token: the interpreter's maximum raises where nothing is a number.
                logits[batch.cu_num_logits_np[row] : batch.cu_num_logits_np[row + 1], :-1] = float("nan")
        prompts_done.update(batch.req_ids)  # a prompt this short takes one step
        return logits

    runner.sample, runner.model.compute_logits = sample_and_look, compute_broken_logits
    try:
        outputs = [request.outputs[0] for request in llm.generate(["red blue red blue"] * 4, params)]
    finally:
        runner.sample, runner.model.compute_logits = sample, compute_logits
    failed, *others = outputs
    assert failed.finish_reason == "error"
    assert failed.constraint["error"]["type"] == "NonFiniteLogits"
    assert failed.constraint["error"]["message"].startswith("After 1 output tokens")
    assert len(failed.token_ids) == 1
    for output in others[:2]:
        assert output.finish_reason != "error"
        assert re.fullmatch(REGEX, output.text) or output.finish_reason == "length", output.text


def check_options_that_leave_nothing(llm, params):
    """A structural tag is not refused beside options that forbid its second token; the request ends there, alone."""
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    first, second = (llm.get_tokenizer().encode(text, add_special_tokens=False) for text in "~^")
    assert len(first) == len(second) == 1
    tag = json.dumps({"type": "structural_tag", "format": {"type": "const_string", "value": "~^"}})
    constraint = StructuredOutputsParams(structural_tag=tag)
    options = [{"allowed_token_ids": first}, {"bad_words": ["^"]}]
    asked = [
        SamplingParams(seed=seed, max_tokens=8, structured_outputs=constraint, **each)
        for seed, each in enumerate(options)
    ]
    *failed, other = [request.outputs[0] for request in llm.generate(["red blue red blue"] * 3, [*asked, params[0]])]
    for output in failed:
        assert output.finish_reason == "error", output.text
        assert output.constraint["error"]["type"] == "ConstraintDeadEnd"
        assert output.constraint["error"]["message"].startswith("After 1 output tokens, the sampling options")
        assert list(output.token_ids) == first
    assert re.fullmatch(REGEX, other.text) or other.finish_reason == "length", other.text
