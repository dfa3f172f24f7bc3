"""Which experts tie, and what exchanging them changes: on a model of one router whose text says what it chose."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tests.parity.expert_ties import opinions

CLEAR = [4.0, 1.0, 0.5, 0.0]
"""Two of four experts are chosen, and nothing ties."""


class TwoTopKRouter(nn.Module):
    def __init__(self, logits):
        super().__init__()
        self.logits = torch.tensor(logits)

    def forward(self, _):
        weights, chosen = self.logits.softmax(-1).topk(2)
        return self.logits, weights, chosen


class Model(nn.Module):
    """The logits of a token are 1 for the experts that were chosen for it."""

    def __init__(self, *routers):
        super().__init__()
        self.routers = nn.ModuleList(map(TwoTopKRouter, routers))

    def forward(self, ids):
        chosen = [nn.functional.one_hot(router(ids)[2], 4).sum(1) for router in self.routers]
        return SimpleNamespace(logits=torch.stack(chosen).sum(0)[None])


@pytest.mark.parametrize(("border", "tied"), [(0.999, True), (1 - 4 / 128 + 1e-3, True), (1 - 4 / 128 - 1e-3, False)])
def test_experts_tie_where_bfloat16_cannot_tell_them_apart(border, tied):
    model = Model([[4.0, 1.0, border, 0.0]])
    assert len(list(opinions(model, [0], 0))) == tied


def test_one_token_gets_the_other_expert_and_nothing_else_changes():
    model = Model([CLEAR, [4.0, 1.0, 0.999, 0.0], [0.0, 4.0, 1.0, 0.999]], [CLEAR, CLEAR, CLEAR])
    plain = model(torch.zeros(1, 3)).logits[0]
    (other,) = opinions(model, [0, 0, 0], 1)
    assert other.tolist() == [plain[0].tolist(), [2, 1, 1, 0], plain[2].tolist()]
    assert plain[1].tolist() == [2, 2, 0, 0]
    assert torch.equal(model(torch.zeros(1, 3)).logits[0], plain)
    assert not list(opinions(model, [0, 0, 0], 0))


def test_every_layer_with_a_tie_has_its_own_opinion():
    tie = [4.0, 1.0, 0.999, 0.0]
    first, second = opinions(Model([tie], [CLEAR], [tie]), [0], 0)
    assert first.tolist() == second.tolist() == [[3, 2, 1, 0]]
