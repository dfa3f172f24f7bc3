"""Min-p, top-k and top-p of many rows at once, without sorting a vocabulary.

What is kept is what vLLM's ``Sampler`` keeps, in its order: min-p, then top-k (equals of the last one stay), then top-p
of what is left. vLLM sorts whole rows for top-p. The nucleus is almost always among the best few hundred tokens, so it
is looked for there first, and only rows in which it is not are sorted.
"""

from __future__ import annotations

from torch import Tensor
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p

_FORBIDDEN = float("-inf")
_CANDIDATES = 512


def truncate(logits: Tensor, min_p: Tensor | None, top_k: Tensor | None, top_p: Tensor | None) -> Tensor:
    """Write ``-inf`` over the logits that are left out, in place, and return them.

    Args:
        logits: float32[R, V], divided by the temperature.
        min_p: float32[R], 0 for none; ``None`` if no row has one.
        top_k: int[R], V for none; likewise.
        top_p: float32[R], 1 for none; likewise.
    """
    if min_p is not None:
        # p(x) / p(best) is the exponential of the difference of their logits.
        bar = logits.amax(1) + min_p.log()
        logits.masked_fill_(logits < bar.unsqueeze(1), _FORBIDDEN)
    if top_k is not None:
        logits = apply_top_k_top_p(logits, top_k, None)
    limited = () if top_p is None else (top_p < 1).nonzero().squeeze(1)
    if top_p is None or not len(limited):
        return logits
    if len(limited) == len(logits):
        return _nucleus(logits, top_p)
    logits[limited] = _nucleus(logits[limited], top_p[limited])
    return logits


def _nucleus(logits: Tensor, top_p: Tensor) -> Tensor:
    values, ids = logits.topk(min(_CANDIDATES, logits.shape[1]))
    chances = (values.double() - logits.logsumexp(1, keepdim=True).double()).exp()
    before = chances.cumsum(1) - chances
    kept = before < top_p.double().unsqueeze(1)
    kept[:, 0] = True
    # The first candidate that is left out shows that the nucleus ended before it; a row of NaN shows nothing.
    complete = (~kept[:, -1] | (values[:, -1] == _FORBIDDEN)) & chances[:, 0].isfinite()
    if values.shape == logits.shape:
        complete = chances[:, 0].isfinite()
    best = values.masked_fill(~kept, _FORBIDDEN)
    if bool(complete.all()):
        return logits.fill_(_FORBIDDEN).scatter_(1, ids, best)
    wide = (~complete).nonzero().squeeze(1)
    sorted_rows = apply_top_k_top_p(logits[wide], None, top_p[wide])
    logits.fill_(_FORBIDDEN).scatter_(1, ids, best)
    logits[wide] = sorted_rows
    return logits
