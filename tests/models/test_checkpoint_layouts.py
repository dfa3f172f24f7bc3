"""Checkpoints in the layouts of released ones load into the same parameters as the tiny ones, heads and tables too."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    directory = str(tmp_path_factory.mktemp("layouts"))
    command = [sys.executable, "-m", "tests.models.checkpoint_layouts", directory]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_every_layout_gives_the_same_parameters(found) -> None:
    differ = found["differ"]
    control = differ.pop("control: experts swapped")
    assert differ == {
        name: []
        for name in (
            "qwen3.5, multimodal",
            "qwen3.5, by transformers",
            "qwen3.5-moe, multimodal",
            "qwen3.5-moe, by transformers",
            "flash-next, multimodal",
            "flash-next, by transformers",
            "flash-next, cut out, one table",
        )
    }
    assert control == ["target model.layers.2.mlp.experts.routed_experts.w2_weight"]
    assert found["compared"] == {"qwen3.5": 58, "qwen3.5-moe": 78, "flash-next": 192}
