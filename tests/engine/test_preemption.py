"""A request that is preempted in the middle of its constraint goes on where it was."""

import pytest
from tokenizers import Tokenizer

from tests.engine.engine_process import EngineProcess
from tests.oracles.languages import LANGUAGES

pytestmark = pytest.mark.engine


def test_preempted_requests_stay_in_their_language(tiny_model):
    """Four prompts just short of a cache block, and one block too few for all to grow into a second one."""
    engine = EngineProcess(
        str(tiny_model),
        environment={"VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
        speculative_config={"method": "mtp", "num_speculative_tokens": 3},
        num_gpu_blocks_override=29,
        disable_log_stats=False,
    )
    language = LANGUAGES["json_schema"]
    words = Tokenizer.from_file(str(tiny_model / "tokenizer.json")).encode("river tree " * 400).ids
    try:
        outputs = engine.generate(
            [
                {
                    "prompt": {"prompt_token_ids": words[: 622 + seed]},
                    "structured": {language.field: language.value},
                    "options": {"temperature": 1.0, "seed": seed, "max_tokens": 350},
                }
                for seed in range(4)
            ]
        )
        assert engine.counter("vllm:num_preemptions") > 0
    finally:
        engine.close()
    for (completion,) in outputs:
        language.check(completion["text"], completion["finish_reason"])
