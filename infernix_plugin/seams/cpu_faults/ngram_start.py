"""The start of vLLM's n-gram drafter, on the CPU.

Reason: the drafter means to compile itself when the engine starts, but does so with requests that have sampled nothing,
which it passes over. So the first request waits for the compiler, six seconds and more on a busy core. Then numba
starts its threads, and tells OpenMP, which torch uses too, to run every later parallel region with a thread for each
core of the machine. What ``OMP_NUM_THREADS`` or vLLM's own binding of threads had said is lost, and from there on every
operation of the model waits for threads that share cores with each other and with other processes.

Fits: vLLM 0.32 and 0.33, CPU platform. Worker process.
"""

from __future__ import annotations

import functools
from typing import Any

from infernix_plugin.seams.seam import Seam, on_cpu


def _replace(original: Any) -> Any:
    from infernix_plugin import settings

    @functools.wraps(original)
    def __init__(self: Any, vllm_config: Any) -> None:  # noqa: N807
        original(self, vllm_config)
        if not settings.load(vllm_config.additional_config).ngram_copies:  # otherwise it never drafts
            _start(self)

    return __init__


def _start(drafter: Any) -> None:
    import numpy as np
    import torch

    threads = torch.get_num_threads()
    text = np.zeros((1, drafter.max_model_len), dtype=np.int32)
    drafter.propose(drafter.k, [[0]], np.ones(1, dtype=np.int32), text)
    torch._C.set_num_threads(threads)  # vLLM's worker has put a function that does nothing over the public name


SEAM = Seam(
    module="vllm.v1.spec_decode.ngram_proposer",
    attribute="NgramProposer.__init__",
    reason="Its first draft waits for a compiler and gives torch a thread for each core, whatever the user had set.",
    replace=on_cpu(_replace),
    parameters=("self", "vllm_config"),
)
