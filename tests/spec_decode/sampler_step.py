"""One step of our rejection sampler, with vLLM's own metadata and logits processors."""

from types import SimpleNamespace

import numpy as np
import torch
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessors
from vllm.v1.sample.logits_processor.builtin import (
    LogitBiasLogitsProcessor,
    MinPLogitsProcessor,
    MinTokensLogitsProcessor,
)
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.sampler import Sampler
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

from infernix_plugin.spec_decode.sampler import ExactRejectionSampler

SIZE = 8
PLACEHOLDER = -1


def options(batch, **changes):
    """Return greedy ``SamplingMetadata`` of so many requests, with ``changes``."""
    values = {
        "temperature": torch.zeros(batch),
        "all_greedy": True,
        "all_random": False,
        "top_p": None,
        "top_k": None,
        "generators": {},
        "max_num_logprobs": None,
        "no_penalties": True,
        "prompt_token_ids": None,
        "frequency_penalties": torch.zeros(batch),
        "presence_penalties": torch.zeros(batch),
        "repetition_penalties": torch.ones(batch),
        "output_token_ids": [[] for _ in range(batch)],
        "allowed_token_ids_mask": None,
        "bad_words_token_ids": {},
        "logitsprocs": LogitsProcessors(),
    }
    return SamplingMetadata(**{**values, **changes})


def random_options(temperatures, **changes):
    """Return metadata of one request per temperature."""
    temperature = torch.tensor(temperatures)
    return options(len(temperatures), temperature=temperature, all_greedy=False, **changes)


def processors(written, **of_requests):
    """Return vLLM's built-in processors as its input batch would have set them up.

    ``written``: output tokens of each request; ``of_requests``: per option of ``SamplingParams``, a value per request.
    """
    configuration = SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=len(written)))
    built = [
        kind(configuration, torch.device("cpu"), False)
        for kind in (MinTokensLogitsProcessor, LogitBiasLogitsProcessor, MinPLogitsProcessor)
    ]
    added = []
    for index, output in enumerate(written):
        params = SamplingParams(**{name: values[index] for name, values in of_requests.items()})
        added.append((index, params, [], output))
    for processor in built:
        processor.update_state(BatchUpdate(len(written), removed=[], added=added, moved=[]))
    return LogitsProcessors(built)


def run(drafts, logits, metadata, q=None, mode="raw_logprobs"):
    """Verify ``drafts``; return the tokens of each request, the failures, and log-probabilities as vLLM reads them."""
    sampler = ExactRejectionSampler(Sampler(logprobs_mode=mode))
    step = SpecDecodeMetadata.make_dummy(drafts, torch.device("cpu"))
    output = sampler.forward(step, q, logits.clone(), metadata)
    tokens, logprobs = ExactRejectionSampler.parse_output(
        output.sampled_token_ids, logits.shape[1], logprobs_tensors=output.logprobs_tensors
    )
    return SimpleNamespace(tokens=tokens, failures=sampler.failures, logprobs=logprobs)


def noise(rows, seed=0, size=SIZE):
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(seed))


def softmax(row):
    row = np.asarray(row, dtype=np.float64)
    weights = np.exp(row - row.max())
    return weights / weights.sum()
