"""The page of ``benchmarks/models.py``: every figure in its place."""

import math

from benchmarks.models import SIZES, Result, page, prompts


def result(family, size, factor):
    return Result(
        family=family,
        size=size,
        parameters=112_300_000,
        prefill={"vllm": 4000.0 * factor, "transformers": 1000.0},
        decode={"vllm": 90.0 * factor, "transformers": 10.0},
        alone={"vllm": 24.0 * factor, "transformers": 6.0},
        contexts=[10.0, 11.0, 13.0, 15.0],
        peak={"vllm": 3 << 30, "transformers": 1 << 30},
        operators=[("aten::mm", 0.5), ("_C::x", 0.25), ("aten::copy_", 0.1)],
    )


def test_figures_are_in_their_places():
    text = page([result("qwen3.5", "tiny", 1), result("qwen3.5-moe", "mid", 2)], threads=1)
    lines = text.splitlines()
    assert "with 1 thread(s)" in text
    first = lines.index("| qwen3.5, tiny | 112.3 M | vllm | 4,000 | 90 | 24 | 3,072 |")
    assert lines[first + 1] == "|  |  | transformers | 1,000 | 10 | 6 | 1,024 |"
    assert lines[first + 2] == "| | | ratio | **4.0** | **9.0** | **4.0** | |"
    assert "| | | ratio | **8.0** | **18.0** | **8.0** | |" in lines
    assert "| qwen3.5-moe, mid | 10.0, 11.0, 13.0, 15.0 | 1.50 |" in lines
    assert "| qwen3.5, tiny | `aten::mm` 50% | `_C::x` 25% | `aten::copy_` 10% |" in lines
    assert "--family qwen3.5 qwen3.5-moe --size tiny mid --threads 1" in text


def test_prompts_are_distinct_and_no_control_tokens():
    rows = prompts(8, 256)
    assert len({tuple(row[:4]) for row in rows}) == 8
    assert all(len(row) == 256 and max(row) < 2000 for row in rows)


def test_mid_sizes_are_about_a_hundred_million():
    from infernix_plugin.model_executor.tiny import checkpoint
    from infernix_plugin.model_executor.weights.layout import Part, slots_of

    for family in SIZES:
        tiny = checkpoint.FAMILIES[family].config(2112, {"<|im_end|>": 0, "<|endoftext|>": 1})
        config = {**tiny, **SIZES[family]["mid"]}
        if config["num_hidden_layers"] != len(config["layer_types"]):
            del config["layer_types"]
        total = sum(math.prod(slot.shape) for slot in slots_of(config, ()) if slot.part is Part.TEXT)
        assert 90e6 < total < 130e6, (family, total)
