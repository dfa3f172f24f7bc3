"""What becomes of vLLM's configuration of drafters: M-RoPE of a text target, and the refusal of candidate heads."""

import json
import os
import shutil
import subprocess
import sys
import textwrap

import pytest

from infernix_plugin.model_executor.tiny import make_tiny_draft

CODE = """
    import sys
    import torch

    def configuration(speculation):
        return EngineArgs(
            model=sys.argv[1], max_model_len=256, max_num_seqs=4, enforce_eager=True, enable_prefix_caching=False,
            speculative_config={"num_speculative_tokens": 3, **speculation},
        ).create_engine_config()

    if __name__ == "__main__":
        from vllm.engine.arg_utils import EngineArgs
        from vllm.plugins import load_general_plugins
        load_general_plugins()
        config = configuration({"method": "mtp"})
        from vllm.v1.spec_decode.eagle import EagleProposer
        proposer = EagleProposer(config, torch.device("cpu"))
        draft = config.speculative_config.draft_model_config
        print("target", config.model_config.uses_mrope)
        print("proposer", proposer.uses_mrope, tuple(proposer._get_positions(5).shape))
        print("draft", draft.uses_mrope, draft.hf_text_config.rope_parameters["partial_rotary_factor"])
        try:
            config = configuration({"method": "dflash", "model": sys.argv[2]})
            print("candidate head", config.speculative_config.draft_model_config.architectures)
        except ValueError as error:
            print("candidate head", "DFlash candidate-head drafts" in str(error))
"""


def outcome(*arguments, **environment):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CODE), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1", **environment},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [line for line in done.stdout.splitlines() if line.startswith(("target", "proposer", "draft", "candidate"))]


@pytest.fixture(scope="module")
def draft(tmp_path_factory):
    directory = tmp_path_factory.mktemp("draft")
    make_tiny_draft(directory, "dflash2")
    return str(directory)


@pytest.fixture(scope="module")
def sectioned(tiny_model, tmp_path_factory):
    """The tiny checkpoint with the M-RoPE sections of the multimodal ones."""
    directory = tmp_path_factory.mktemp("models") / "sectioned"
    shutil.copytree(tiny_model, directory)
    path = directory / "config.json"
    config = json.loads(path.read_text())
    config["rope_parameters"] |= {"mrope_section": [3, 3, 2], "mrope_interleaved": True}
    path.write_text(json.dumps(config))
    return str(directory)


def test_one_row_of_positions_and_candidate_heads(sectioned, draft) -> None:
    assert outcome(sectioned, draft) == [
        "target False",
        "proposer False (5,)",
        "draft False 0.25",
        "candidate head ['DFlash2DraftModel']",
    ]


def test_what_vllm_does_by_itself(sectioned, draft) -> None:
    """The faults themselves; if this fails, vLLM has mended one and its seam can go."""
    assert outcome(sectioned, draft, INFERNIX_DISABLE="1") == [
        "target False",
        "proposer True (3, 5)",
        "draft True 0.25",
        "candidate head True",
    ]
