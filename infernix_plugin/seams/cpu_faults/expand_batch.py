"""Per-request sampling parameters, repeated for every draft token, on the CPU.

Reason: on the CPU upstream lets a kernel for int64 write into a converted copy of the result and drops the copy, so for
float32 (temperature, top-p) and int32 (top-k) the caller gets uninitialised memory. Logits divided by that are garbage
or NaN, and the kernel that samples after a rejection then returns the rejected draft itself, legal or not.

Fits: vLLM 0.32 and 0.33, CPU platform. Worker process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infernix_plugin.seams.seam import Seam, on_cpu

if TYPE_CHECKING:
    from torch import Tensor


def expand_batch_to_tokens(
    x: Tensor, cu_num_tokens: Tensor, num_tokens: int, replace_from: int = 0, replace_to: int = 0
) -> Tensor:
    """Repeat ``x[i]`` once for each of request ``i``'s tokens.

    Args:
        x: ``[requests]``, any dtype.
        cu_num_tokens: ``[requests]``, running total of the tokens up to and including each request.
        num_tokens: the last running total.
        replace_from: entries of ``x`` equal to this ...
        replace_to: ... come out as this; nothing is replaced when both are the same.

    Returns:
        ``[num_tokens]``, dtype of ``x``: ``x = [a, b, c]`` with totals ``[2, 5, 6]`` gives ``[a, a, b, b, b, c]``.
    """
    counts = cu_num_tokens.diff(prepend=cu_num_tokens.new_zeros(1))
    return x.masked_fill(x == replace_from, replace_to).repeat_interleave(counts, output_size=num_tokens)


def _replace(original: Any) -> Any:
    return expand_batch_to_tokens


SEAM = Seam(
    module="vllm.v1.sample.rejection_sampler",
    attribute="expand_batch_to_tokens",
    reason="On the CPU the sampling parameters of draft rows are uninitialised memory unless they are int64.",
    replace=on_cpu(_replace),
    parameters=("x", "cu_num_tokens", "num_tokens", "replace_from", "replace_to"),
)
