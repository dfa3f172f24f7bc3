"""Constraints offline: one batch with three different constraints and a free request.

infernix make-tiny-model /tmp/tiny && VLLM_CPU_KVCACHE_SPACE=1 python examples/offline.py /tmp/tiny

On a CPU the variable says how many GiB hold keys and values; without it vLLM wants nearly all memory.
"""

import sys

from vllm import LLM, SamplingParams
from vllm.sampling_params import StructuredOutputsParams

CONSTRAINTS = {
    "Is the sky blue? ": StructuredOutputsParams(choice=["yes", "no"]),
    "A date: ": StructuredOutputsParams(regex="(19|20)[0-9]{2}-(0[1-9]|1[0-2])-[0-3][0-9]"),
    "A point as JSON: ": StructuredOutputsParams(
        json={
            "type": "object",
            "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
            "required": ["x", "y"],
            "additionalProperties": False,
        }
    ),
    "Once upon a time ": None,
}


def main(model: str) -> None:
    """Run the batch."""
    llm = LLM(model, max_model_len=512, enforce_eager=True, enable_prefix_caching=False)
    params = [SamplingParams(max_tokens=64, structured_outputs=constraint) for constraint in CONSTRAINTS.values()]
    for answer in llm.generate(list(CONSTRAINTS), params, use_tqdm=False):
        output = answer.outputs[0]
        cut = " (cut: max_tokens)" if output.finish_reason == "length" else ""
        print(repr(answer.prompt), "->", repr(output.text) + cut)


if __name__ == "__main__":
    main(sys.argv[1]) if len(sys.argv) == 2 else sys.exit(__doc__)
