"""``min_p`` and ``logit_bias`` beside drafts, and the kinds of speculation at which the plugin refuses to start."""

from types import SimpleNamespace

import pytest
import torch
from vllm import EngineArgs, SamplingParams
from vllm.exceptions import VLLMValidationError
from vllm.v1.sample.logits_processor import BUILTIN_LOGITS_PROCESSORS, build_logitsprocs

from infernix_plugin import settings
from infernix_plugin.errors import InfernixError
from infernix_plugin.seams import engine_arguments, speculative_options
from infernix_plugin.spec_decode.hypothetical import PROCESSORS
from infernix_plugin.spec_decode.sampler import ExactRejectionSampler


def test_we_know_every_processor_that_vllm_builds():
    assert list(PROCESSORS) == BUILTIN_LOGITS_PROCESSORS


@pytest.mark.parametrize("options", [{"min_p": 0.1}, {"logit_bias": {3: 1.0}}])
def test_vllm_refuses_them_and_we_do_not(options, monkeypatch):
    refuse, params = SamplingParams._validate_spec_decode, SamplingParams(**options)
    speculation = SimpleNamespace(enable_adaptive_verification=False)
    with pytest.raises(VLLMValidationError):
        refuse(params, speculation)
    ours = speculative_options.VALIDATION.replace(refuse)
    ours(params, speculation)
    assert (params.min_p, params.logit_bias) == (options.get("min_p", 0.0), options.get("logit_bias"))
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")  # its sampler is vLLM's
    with pytest.raises(VLLMValidationError):
        ours(params, speculation)


def test_what_else_vllm_refuses_stays_refused():
    def refuse(self, speculative_config):
        raise VLLMValidationError("something else")

    with pytest.raises(VLLMValidationError, match="something else"):
        speculative_options.VALIDATION.replace(refuse)(SamplingParams(min_p=0.5), object())


def test_the_runner_builds_the_processors_with_drafts_too():
    config = SimpleNamespace(
        speculative_config=object(), scheduler_config=SimpleNamespace(max_num_seqs=3), model_config=None
    )
    arguments = (config, torch.device("cpu"), False, False)
    theirs = {type(each) for each in build_logitsprocs(*arguments).all}
    ours = {type(each) for each in speculative_options.PROCESSORS_OF_RUNNER.replace(build_logitsprocs)(*arguments).all}
    assert theirs < ours == set(PROCESSORS)
    with pytest.raises(ValueError, match="Custom logits processors"):
        speculative_options.PROCESSORS_OF_RUNNER.replace(build_logitsprocs)(*arguments, ["a.custom.Processor"])


def start(monkeypatch, speculation, *, v2=False):
    monkeypatch.setattr(settings, "_current", None)
    config = SimpleNamespace(
        speculative_config=speculation,
        use_v2_model_runner=v2,
        structured_outputs_config=SimpleNamespace(backend="auto"),
        model_config=None,
    )
    seam = engine_arguments.SEAM.replace(lambda self: config)
    arguments = object.__new__(EngineArgs)  # as they are by default, without what making them would load
    arguments.model, arguments.additional_config, arguments.hf_overrides = "some/name", {}, {}
    return seam(arguments)


def speculation(verify="standard", draft="greedy"):
    return SimpleNamespace(rejection_sample_method=verify, draft_sample_method=draft)


@pytest.mark.parametrize("method", ["synthetic", "some later shortcut"])
def test_verification_that_is_not_exact_stops_the_start(monkeypatch, method):
    with pytest.raises(engine_arguments.SettingsRefused) as refused:
        start(monkeypatch, speculation(method))
    line = str(refused.value)
    assert line.startswith(f"infernix-plugin: rejection_sample_method {method!r}")
    assert "\n" not in line
    assert refused.value.code == line, "and ends a command line with it"


def test_exact_speculation_starts(monkeypatch):
    for allowed in (None, speculation(), speculation("block"), speculation(draft="probabilistic")):
        start(monkeypatch, allowed)


def test_sampled_drafts_of_the_first_runner_on_a_gpu_stop_the_start(monkeypatch):
    monkeypatch.setattr(engine_arguments, "_on_cpu", lambda: False)
    with pytest.raises(engine_arguments.SettingsRefused, match="draft_sample_method 'probabilistic'"):
        start(monkeypatch, speculation(draft="probabilistic"))
    start(monkeypatch, speculation(draft="probabilistic"), v2=True)
    start(monkeypatch, speculation())


def test_our_sampler_does_not_pretend_to_be_synthetic():
    config = SimpleNamespace(rejection_sample_method="synthetic", synthetic_acceptance_rates=[0.5])
    with pytest.raises(InfernixError, match="Synthetic"):
        ExactRejectionSampler(SimpleNamespace(logprobs_mode="raw_logprobs"), config)
