"""Run an engine in this process and write down every proposal: ``python -m tests.engine.draft_trace JOB OUT``.

``JOB`` is a JSON file with ``model``, ``speculation`` and ``batches`` of requests; ``OUT`` gets a torch file with, for
each batch, the completions and every proposal: the committed text, the drafts, and what was recorded as their q.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.engine.engine_process import ENVIRONMENT, SMALL


def trace(job: dict[str, Any]) -> list[dict[str, Any]]:
    from vllm import LLM, SamplingParams

    from infernix_plugin.spec_decode.proposal import Proposal
    from infernix_plugin.spec_decode.worker import _texts

    engine = LLM(job["model"], speculative_config=job["speculation"], **SMALL)
    core = engine.llm_engine.engine_core.engine_core
    runner = core.model_executor.driver_worker.worker.model_runner
    propose, seen = runner.propose_draft_token_ids, []

    def traced(scheduler_output: Any, sampled: Any, *args: Any) -> Any:
        texts = [[*text.tolist(), *latest.tolist()] for text, latest in _texts(runner, sampled)]
        drafts = propose(scheduler_output, sampled, *args)
        proposal = Proposal.of(runner._draft_probs)
        for row, text in enumerate(texts):
            if not runner.discard_request_mask.np[row]:
                entry = {"text": text, "drafts": drafts[row].tolist()}
                if proposal is not None:
                    entry["q"] = proposal.probabilities[row].clone()
                    entry["candidates"] = None if proposal.candidates is None else proposal.candidates[row].clone()
                seen.append(entry)
        return drafts

    runner.propose_draft_token_ids = traced
    results = []
    for batch in job["batches"]:
        seen.clear()
        outputs = engine.generate(
            [request["prompt"] for request in batch],
            [SamplingParams(**request["options"]) for request in batch],
            use_tqdm=False,
        )
        tokens = [list(output.outputs[0].token_ids) for output in outputs]
        results.append({"tokens": tokens, "proposals": list(seen)})
    core.shutdown()
    return results


if __name__ == "__main__":
    os.environ |= {**ENVIRONMENT, "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    import torch

    torch.save(trace(json.loads(Path(sys.argv[1]).read_text())), sys.argv[2])
