"""Experts that tie: bfloat16 may choose either of two, and what follows is another opinion of the same model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import torch

_ROUTER = "TopKRouter"
"""How transformers' classes end that return logits ``[tokens, experts]``, and of the best ones weights and numbers."""


def opinions(model: Any, ids: list[int], position: int) -> Iterator[torch.Tensor]:
    """Yield the logits ``[tokens, vocabulary]`` of texts in which two experts are exchanged at ``position``.

    One text for each layer where the last expert that is chosen there ties with the first that is not: their logits are
    nearer than bfloat16 rounds a number as large as the largest of that layer.
    """
    for router in _tied_routers(model, ids, position):

        def exchange(_: Any, __: Any, output: Any) -> Any:
            logits, weights, chosen = output
            chosen = chosen.clone()
            chosen[position, -1] = logits[position].topk(chosen.size(1) + 1).indices[-1]
            return logits, weights, chosen

        with ExitStack() as hooks:
            hooks.callback(router.register_forward_hook(exchange).remove)
            yield model(torch.tensor([ids])).logits[0]


def _tied_routers(model: Any, ids: list[int], position: int) -> list[Any]:
    found = []

    def look(router: Any, _: Any, output: Any) -> None:
        logits = output[0][position].float()
        *_, last, following = logits.topk(output[2].size(1) + 1).values
        if last - following < torch.finfo(torch.bfloat16).eps * logits.abs().max():
            found.append(router)

    with ExitStack() as hooks:
        for module in model.modules():
            if type(module).__name__.endswith(_ROUTER):
                hooks.callback(module.register_forward_hook(look).remove)
        model(torch.tensor([ids]))
    return found
