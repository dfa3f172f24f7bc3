"""The tiny checkpoint: the same bytes from the same seed, and what transformers and vLLM make of it."""

import json
import math
import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
import torch
from jinja2 import TemplateError
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from infernix_plugin.model_executor.tiny import corpus, make_random_model, make_tiny_model
from infernix_plugin.model_executor.tiny.tokenizer import CONTROL_TOKENS, TEXT_TOKENS, VISIBLE
from infernix_plugin.model_executor.weights.inspection import inspect_checkpoint

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather now.",
        "parameters": {"type": "object", "properties": {}},
    },
}
QUESTION = {"role": "user", "content": "Hi"}


@pytest.fixture(scope="module")
def tokenizer(tiny_model):
    return AutoTokenizer.from_pretrained(tiny_model)


@pytest.fixture(scope="module")
def model(tiny_model):
    return AutoModelForCausalLM.from_pretrained(tiny_model).eval()


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


# --- files ------------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bytes_in_another_process(tiny_model, tmp_path) -> None:
    code = "import sys; from infernix_plugin.model_executor.tiny import make_tiny_model as m; m(sys.argv[1])"
    environment = {**os.environ, "PYTHONHASHSEED": "1", "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, env=environment, timeout=600)
    assert contents(tmp_path) == contents(tiny_model)
    assert sorted(contents(tiny_model)) == [
        "chat_template.jinja", "config.json", "generation_config.json",
        "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    ]  # fmt: skip


def test_another_seed_changes_the_weights_only(tiny_model, tmp_path) -> None:
    lines: list[str] = []
    make_tiny_model(tmp_path, seed=1, report=lines.append)
    ours, other = contents(tiny_model), contents(tmp_path)
    assert [name for name in ours if ours[name] != other[name]] == ["model.safetensors"]
    assert lines


def test_generation_stops_at_both_ends(tiny_model, tokenizer) -> None:
    config = json.loads((tiny_model / "generation_config.json").read_text())
    assert tokenizer.convert_ids_to_tokens(config["eos_token_id"]) == ["<|im_end|>", "<|endoftext|>"]
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.pad_token == "<|endoftext|>"


# --- tokenizer --------------------------------------------------------------------------------------------------------

TEXTS = [
    "", " ", "\n\n  \t x", "don't stop, it's 2026-01-31 at 09:30!", '{"a": [1, 2.5e-3, null], "b": "\\u00e9\\n"}',
    "今天天气很好。👩‍💻🏳️‍🌈", "नमस्ते ไทย العربية", "def f(x):\n    return x ** 2\n", "\x00\x1f\x7f", "e\u0301 = é",
    "𝔘𝔫𝔦 ﷽", "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>",
    "<|im_start|>user\nhi<|im_end|>\n", *list(corpus.documents())[::97],
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_text_survives_the_tokenizer(tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == unicodedata.normalize("NFC", text)


def test_transformers_and_tokenizers_read_the_same_tokenizer(tiny_model, tokenizer) -> None:
    plain = Tokenizer.from_file(str(tiny_model / "tokenizer.json"))
    for text in TEXTS:
        assert tokenizer.encode(text) == plain.encode(text).ids


def test_digits_are_single_tokens(tokenizer) -> None:
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("12345")) == list("12345")
    assert not [token for token in tokenizer.get_vocab() if sum(c.isdigit() for c in token) > 1 and token.isascii()]


def test_vocabulary_is_bytes_merges_and_control_tokens(tiny_model, tokenizer) -> None:
    vocabulary = tokenizer.get_vocab()
    assert len(vocabulary) == TEXT_TOKENS + len(CONTROL_TOKENS)
    assert [tokenizer.convert_tokens_to_ids(token) for token in CONTROL_TOKENS] == list(
        range(TEXT_TOKENS, len(vocabulary))
    )
    assert sum(len(token) == 1 for token in vocabulary) == 256
    rows = json.loads((tiny_model / "config.json").read_text())["vocab_size"]
    assert rows > len(vocabulary)
    assert rows % 64 == 0


def test_only_text_like_control_tokens_are_shown(tokenizer) -> None:
    for token in CONTROL_TOKENS:
        ids = tokenizer.encode(f"a{token}b")
        assert ids[1:-1] == [tokenizer.convert_tokens_to_ids(token)]
        assert tokenizer.decode(ids, skip_special_tokens=True) == (f"a{token}b" if token in VISIBLE else "ab")
    assert {"<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"} <= set(VISIBLE)


# --- chat template ----------------------------------------------------------------------------------------------------


def render(tokenizer, messages, **options) -> str:
    return tokenizer.apply_chat_template(messages, **{"tokenize": False, "add_generation_prompt": True, **options})


OPENED = "<|im_start|>assistant\n<think>\n"
CLOSED = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
HI = "<|im_start|>user\nHi<|im_end|>\n"
TOOLS = (
    "# Tools\n\nThese functions can be called:\n\n<tools>\n"
    '{"type": "function", "function": {"name": "get_weather", "description": "Weather now.", '
    '"parameters": {"type": "object", "properties": {}}}}\n</tools>\n\n'
    "To call one, end the reply with a block of exactly this form, and write nothing after it:\n\n"
    "<tool_call>\n<function=name_of_function>\n<parameter=name_of_parameter>\nthe value, on as many lines as it needs\n"
    "</parameter>\n</function>\n</tool_call>\n\n"
    "Give every required parameter. For several calls, write several blocks. "
    "Explanations belong before the first block. If no function fits, answer as usual and do not mention functions."
)
ARGUMENTS = {"city": "Oslo", "days": 2, "tags": ["a", 1], "o": {"k": None}}
CALL = {
    "type": "function",
    "function": {"name": "f", "arguments": ARGUMENTS},
}
CALL_TEXT = (
    "<tool_call>\n<function=f>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
    '<parameter=tags>\n["a", 1]\n</parameter>\n<parameter=o>\n{"k": null}\n</parameter>\n</function>\n</tool_call>'
)
NO_ARGUMENTS = {"type": "function", "function": {"name": "g", "arguments": {}}}
NO_ARGUMENTS_TEXT = "<tool_call>\n<function=g>\n</function>\n</tool_call>"

RENDERINGS = {
    "user": ([QUESTION], {}, HI + OPENED),
    "no generation prompt": ([QUESTION], {"add_generation_prompt": False}, HI),
    "thinking on": ([QUESTION], {"enable_thinking": True}, HI + OPENED),
    "thinking off": ([QUESTION], {"enable_thinking": False}, HI + CLOSED),
    "system": (
        [{"role": "system", "content": " Be brief.\n"}, QUESTION],
        {},
        "<|im_start|>system\nBe brief.<|im_end|>\n" + HI + OPENED,
    ),
    "parts": (
        [{"role": "user", "content": [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]}],
        {},
        HI + OPENED,
    ),
    "tools": ([QUESTION], {"tools": [WEATHER]}, f"<|im_start|>system\n{TOOLS}<|im_end|>\n{HI}{OPENED}"),
    "tools and system": (
        [{"role": "system", "content": "Be brief."}, QUESTION],
        {"tools": [WEATHER], "enable_thinking": False},
        f"<|im_start|>system\n{TOOLS}\n\nBe brief.<|im_end|>\n{HI}{CLOSED}",
    ),
    "old reasoning is dropped": (
        [QUESTION, {"role": "assistant", "reasoning_content": "why", "content": "Yo"}, QUESTION],
        {},
        f"{HI}<|im_start|>assistant\nYo<|im_end|>\n{HI}{OPENED}",
    ),
    "old reasoning inside the content is dropped": (
        [QUESTION, {"role": "assistant", "content": "<think>\nwhy\n</think>\n\nYo"}, QUESTION],
        {},
        f"{HI}<|im_start|>assistant\nYo<|im_end|>\n{HI}{OPENED}",
    ),
    "call, result, and reasoning that is kept": (
        [
            QUESTION,
            {"role": "assistant", "reasoning_content": "\nlook it up\n", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "content": "rain"},
        ],
        {},
        f"{HI}<|im_start|>assistant\n<think>\nlook it up\n</think>\n\n{CALL_TEXT}<|im_end|>\n"
        f"<|im_start|>user\n<tool_response>\nrain\n</tool_response><|im_end|>\n{OPENED}",
    ),
    "two calls after text, two results": (
        [
            QUESTION,
            {"role": "assistant", "content": "Wait.", "tool_calls": [CALL, NO_ARGUMENTS]},
            {"role": "tool", "content": "rain"},
            {"role": "tool", "content": "sun"},
        ],
        {},
        f"{HI}<|im_start|>assistant\n<think>\n\n</think>\n\nWait.\n\n{CALL_TEXT}\n{NO_ARGUMENTS_TEXT}<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\nrain\n</tool_response>\n<tool_response>\nsun\n</tool_response><|im_end|>\n"
        + OPENED,
    ),
    "an old call loses its reasoning": (
        [
            QUESTION,
            {"role": "assistant", "reasoning": "hm", "content": None, "tool_calls": [NO_ARGUMENTS]},
            {"role": "tool", "content": "sun"},
            QUESTION,
        ],
        {},
        f"{HI}<|im_start|>assistant\n{NO_ARGUMENTS_TEXT}<|im_end|>\n"
        f"<|im_start|>user\n<tool_response>\nsun\n</tool_response><|im_end|>\n{HI}{OPENED}",
    ),
    "a wrapped result is no question": (
        [
            QUESTION,
            {"role": "assistant", "reasoning_content": "hm", "content": "a"},
            {"role": "user", "content": "<tool_response>\nsun\n</tool_response>"},
        ],
        {},
        f"{HI}<|im_start|>assistant\n<think>\nhm\n</think>\n\na<|im_end|>\n"
        f"<|im_start|>user\n<tool_response>\nsun\n</tool_response><|im_end|>\n{OPENED}",
    ),
    "continuation": (
        [QUESTION, {"role": "assistant", "content": '{"a": '}],
        {"add_generation_prompt": False, "continue_final_message": True},
        HI + CLOSED + '{"a":',
    ),
    "continuation after reasoning": (
        [QUESTION, {"role": "assistant", "reasoning_content": "hm", "content": "Yo"}],
        {"add_generation_prompt": False, "continue_final_message": True},
        f"{HI}<|im_start|>assistant\n<think>\nhm\n</think>\n\nYo",
    ),
}


@pytest.mark.parametrize("name", RENDERINGS)
def test_rendering(tokenizer, name: str) -> None:
    messages, options, expected = RENDERINGS[name]
    assert render(tokenizer, json.loads(json.dumps(messages)), **options) == expected


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([{"role": "assistant", "content": "a"}], "no question"),
        ([QUESTION, {"role": "system", "content": "late"}], "come first"),
        ([{"role": "narrator", "content": "a"}, QUESTION], "Unknown role"),
        ([{"role": "user", "content": [{"type": "smell"}]}], "text, image or video"),
    ],
)
def test_wrong_conversations_are_refused(tokenizer, messages, problem: str) -> None:
    with pytest.raises(TemplateError, match=problem):
        render(tokenizer, messages)


# --- transformers -----------------------------------------------------------------------------------------------------


def test_transformers_loads_every_weight_and_generates(tiny_model, tokenizer) -> None:
    model, loading = AutoModelForCausalLM.from_pretrained(tiny_model, output_loading_info=True)
    assert not any(loading[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert model.dtype == torch.bfloat16
    prompt = tokenizer.apply_chat_template(
        [QUESTION], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    generated = model.generate(**prompt, max_new_tokens=16, min_new_tokens=16, do_sample=False)
    assert generated.shape[-1] == prompt["input_ids"].shape[-1] + 16


def test_the_next_token_is_neither_certain_nor_noise(model, tokenizer) -> None:
    text = "\n".join(turn.reply for turn in list(corpus.conversations())[:40])
    with torch.no_grad():
        logits = model(tokenizer(text, return_tensors="pt").input_ids[:, :600]).logits[0].float()
    entropy = torch.distributions.Categorical(logits=logits).entropy().mean().item()
    assert 1.5 < entropy < 5 < math.log(logits.shape[-1])


# --- vLLM -------------------------------------------------------------------------------------------------------------

PROMPTS = [
    "Extract the name as JSON: Ada Lopez from Lisbon repaired the bridge.", "What is the weather in Oslo?", "Hello",
    "Classify this message: The red car stopped.", "今天天气很好", "Write code",
    "When did Rosa visit the museum?", "7 + 5?",
]  # fmt: skip

ENGINE = """
import json, sys
from vllm import LLM, SamplingParams
task = json.load(sys.stdin)
llm = LLM(task["model"], max_model_len=1024, max_num_seqs=8, enforce_eager=True, enable_prefix_caching=False,
          disable_log_stats=False, **task["options"])
sampling = SamplingParams(temperature=0, max_tokens=64, ignore_eos=True, logprobs=2)
answers = llm.chat([[{"role": "user", "content": prompt}] for prompt in task["prompts"]], sampling, use_tqdm=False)
continued = llm.chat([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}], sampling,
                     add_generation_prompt=False, continue_final_message=True, use_tqdm=False)
json.dump({
    "prompts": [answer.prompt_token_ids for answer in answers],
    "tokens": [list(answer.outputs[0].token_ids) for answer in answers],
    "logprobs": [[sorted((p.logprob for p in at.values()), reverse=True)[:2] for at in answer.outputs[0].logprobs]
                 for answer in answers],
    "continued": continued[0].prompt_token_ids,
    "counters": {m.name: m.value for m in llm.get_metrics() if "spec_decode" in m.name and hasattr(m, "value")},
}, open(task["answer"], "w"))
"""


def run_engine(model: Path, answer: Path, **options) -> dict:
    task = {"model": str(model), "prompts": PROMPTS, "options": options, "answer": str(answer)}
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ENGINE],
        input=json.dumps(task),
        text=True,
        capture_output=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(answer.read_text())


@pytest.fixture(scope="module")
def plain(tiny_model, tmp_path_factory) -> dict:
    return run_engine(tiny_model, tmp_path_factory.mktemp("engine") / "plain.json")


def agreement(reference: dict, other: dict) -> float:
    """The share of tokens before the first difference; a difference is allowed only where the two best nearly tie."""
    agreed = 0
    for tokens, others, best in zip(reference["tokens"], other["tokens"], reference["logprobs"], strict=True):
        same = next((i for i, pair in enumerate(zip(tokens, others, strict=True)) if pair[0] != pair[1]), len(tokens))
        if same < len(tokens):
            assert best[same][0] - best[same][1] < 0.1, f"differs at {same} without a tie"
        agreed += same
    return agreed / sum(map(len, reference["tokens"]))


@pytest.mark.engine
def test_vllm_renders_the_template(plain, tokenizer) -> None:
    assert plain["prompts"][2] == tokenizer.encode(f"<|im_start|>user\nHello<|im_end|>\n{OPENED}")
    assert plain["continued"] == tokenizer.encode(HI + CLOSED + "Yo")


@pytest.mark.engine
def test_vllm_computes_what_transformers_computes(plain, model) -> None:
    for prompt, tokens in zip(plain["prompts"], plain["tokens"], strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1].float()
        behind = logits.max(-1).values - logits.gather(1, torch.tensor(tokens)[:, None])[:, 0]
        assert behind.max() < 0.25
        assert (behind == 0).float().mean() > 0.9


@pytest.mark.engine
def test_greedy_answers_depend_on_the_prompt(plain) -> None:
    assert len({tuple(tokens[:32]) for tokens in plain["tokens"]}) > len(PROMPTS) // 2


@pytest.mark.engine
@pytest.mark.parametrize("drafts", [1, 3])
def test_mtp_changes_no_greedy_token_and_saves_steps(plain, tiny_model, tmp_path, drafts: int) -> None:
    speculative = {"method": "mtp", "num_speculative_tokens": drafts}
    other = run_engine(tiny_model, tmp_path / "mtp.json", speculative_config=speculative)
    assert agreement(plain, other) > 0.6
    counters = other["counters"]
    accepted, drafted = (counters[f"vllm:spec_decode_num_{what}_tokens"] for what in ("accepted", "draft"))
    assert 0.2 * drafted < accepted < drafted


# --- the other families -----------------------------------------------------------------------------------------------


def test_flash_next_is_complete_and_repeatable(tmp_path) -> None:
    """Every layer kind; all tensors that transformers wants, none but the MTP head beside; equal seeds, equal bytes."""
    first, second = tmp_path / "first", tmp_path / "second"
    for directory in (first, second):
        make_tiny_model(directory, family="flash-next", seed=3)
    assert contents(first) == contents(second)
    config = AutoConfig.from_pretrained(first)
    assert config.layer_types == (["linear_attention"] * 3 + ["indexed_attention"]) * 2
    model, found = AutoModelForCausalLM.from_pretrained(first, output_loading_info=True)
    assert not any(found[kind] for kind in ("mismatched_keys", "unexpected_keys", "error_msgs"))
    derived = ("layer_multipliers", "ngram_heads_vocab_sizes", "ngram_heads_offsets")
    assert all(name.endswith(derived) for name in found["missing_keys"])
    table = model.model.layers[1].ple.ple_embedding.ngram_embedding.weight
    shards = load_file(first / "model.safetensors")
    parts = [value for name, value in sorted(shards.items()) if "ngram_embedding.shard_" in name]
    assert len(parts) == config.split_ngram_parts
    assert torch.equal(table, torch.cat(parts))


def test_moe_is_complete_and_repeatable(tmp_path) -> None:
    """All tensors that transformers wants, and the MTP head beside; equal seeds, equal bytes."""
    first, second = tmp_path / "first", tmp_path / "second"
    for directory in (first, second):
        make_tiny_model(directory, family="qwen3.5-moe", seed=3)
    assert contents(first) == contents(second)
    model, found = AutoModelForCausalLM.from_pretrained(first, output_loading_info=True)
    assert not any(found[kind] for kind in ("missing_keys", "mismatched_keys", "unexpected_keys", "error_msgs"))
    assert model.model.layers[0].mlp.experts.gate_up_proj.shape == (8, 2 * 64, 256)
    assert inspect_checkpoint(first).complete


@pytest.mark.parametrize("family", ["qwen3.5", "qwen3.5-moe"])
def test_random_models_have_the_sizes_asked_for(tmp_path, family) -> None:
    """And logits of the size that they are meant to have: the best of two thousand is about three deviations up."""
    make_random_model(tmp_path, family=family, changes={"hidden_size": 128, "num_hidden_layers": 6, "head_dim": 32})
    model, found = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True, dtype=torch.float32)
    assert not any(found[kind] for kind in ("missing_keys", "mismatched_keys", "unexpected_keys", "error_msgs"))
    assert len(model.model.layers) == 6
    with torch.no_grad():
        logits = model(torch.arange(50)[None]).logits[0]
    assert 0.5 < float(logits.std()) < 0.7
