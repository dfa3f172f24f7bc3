"""The offline half of the demo: every job in one batch through ``LLM.generate``, in a process of its own.

    python -m infernix_plugin.entrypoints.demo.offline MODEL ENGINE_JSON RESULT_FILE

``ENGINE_JSON`` holds the keyword arguments of ``vllm.LLM``. The result is a JSON list with one object for each job of
:func:`infernix_plugin.entrypoints.demo.jobs.jobs`: text, finish_reason, drafted, accepted, and the batch's seconds.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from infernix_plugin.entrypoints.demo.jobs import Job, jobs


def main(model: str, engine: str, result: str) -> None:
    """Run the batch and write the result file."""
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    llm = LLM(model=model, per_request_spec_decode_metrics="summary", **json.loads(engine))
    render = llm.get_tokenizer().apply_chat_template

    def prompt(job: Job) -> str:
        return str(render(job.messages, tokenize=False, add_generation_prompt=True, enable_thinking=False))

    def sampling(job: Job) -> Any:
        constraint = StructuredOutputsParams(**{job.kind: job.constraint}) if job.kind else None
        return SamplingParams(temperature=1.0, seed=1, max_tokens=job.max_tokens, structured_outputs=constraint)

    started = time.monotonic()
    answers = llm.generate([prompt(job) for job in jobs()], [sampling(job) for job in jobs()], use_tqdm=False)
    seconds = time.monotonic() - started
    Path(result).write_text(json.dumps([_record(answer.outputs[0], seconds) for answer in answers]), encoding="utf-8")


def _record(completion: Any, seconds: float) -> dict[str, Any]:
    drafts = completion.spec_decode_metrics  # .histogram[j]: verification steps that accepted j drafts
    return {
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "drafted": drafts.num_draft_tokens if drafts else 0,
        "accepted": sum(j * steps for j, steps in enumerate(drafts.histogram)) if drafts else 0,
        "seconds": seconds,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
