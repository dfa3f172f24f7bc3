"""The table of families against transformers' own models, and the checkpoints that must not pass."""

import json
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from vllm.model_executor.models.utils import AutoWeightsLoader

from infernix_plugin.errors import CheckpointError
from infernix_plugin.model_executor.tiny import make_tiny_draft
from infernix_plugin.model_executor.weights import layout
from infernix_plugin.model_executor.weights.headers import INDEX
from infernix_plugin.model_executor.weights.inspection import inspect_checkpoint, require_parts
from infernix_plugin.model_executor.weights.layout import Part, slots_of
from infernix_plugin.seams import checkpoint_check

TEXT = {
    "hidden_size": 64, "num_hidden_layers": 4, "vocab_size": 128,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 16,
}  # fmt: skip
DENSE = {"intermediate_size": 48}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 24}
VISION = {
    "depth": 2, "hidden_size": 32, "num_heads": 2, "intermediate_size": 48, "out_hidden_size": 64,
    "num_position_embeddings": 16,
}  # fmt: skip
STREAMS = {
    "hc_count": 2, "hc_lowrank": 8, "ple_layer_ids": [1, 3], "ple_embed_dim": 24, "heads_per_ngram": 3,
    "ngram_vocab_size_base": 50, "split_ngram_parts": 4, "eos_token_id": 1, "indexer_n_heads": 2, "indexer_kv_heads": 1,
    "indexer_head_dim": 16, "indexer_budget": 8, "indexer_compress_ratio": 4,
}  # fmt: skip
FAMILIES = {"Qwen3_5": DENSE, "Qwen3_5Moe": MOE, "Qwen4Exp": MOE | STREAMS}


def transformers_model(family, kind, **more):
    """Return the configuration as ``config.json`` has it, and names and shapes of transformers' own model."""
    text = TEXT | FAMILIES[family] | more
    if kind == "ForCausalLM":
        config = getattr(transformers, f"{family}TextConfig")(**text)
    else:
        config = getattr(transformers, f"{family}Config")(text_config=text, vision_config=VISION)
    with torch.device("meta"):
        model = getattr(transformers, family + kind)(config)
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    return json.loads(config.to_json_string()) | {"architectures": [family + kind]}, shapes


@pytest.mark.parametrize("kind", ["ForCausalLM", "ForConditionalGeneration"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("more", [{}, {"attention_bias": True}, {"full_attention_interval": 2}], ids=str)
def test_names_and_shapes_are_those_of_transformers(family, kind, more):
    config, shapes = transformers_model(family, kind, **more)
    assert {slot.name: slot.shape for slot in slots_of(config, shapes) if slot.part != Part.MTP} == shapes


def test_a_text_checkpoint_may_keep_the_names_of_the_multimodal_one_it_was_cut_from():
    config, shapes = transformers_model("Qwen3_5", "ForCausalLM")
    nested = {name.replace("model.", "model.language_model.", 1): shape for name, shape in shapes.items()}
    slots = [slot for slot in slots_of(config, nested) if slot.part == Part.TEXT]
    assert {slot.name: slot.shape for slot in slots} == nested
    assert {slot.into for slot in slots} == {slot.into for slot in slots_of(config, shapes)}


def test_experts_may_come_one_by_one():
    config, shapes = transformers_model("Qwen3_5Moe", "ForCausalLM")
    single = {}
    for name, shape in shapes.items():
        if name.endswith("experts.gate_up_proj"):
            for expert in range(shape[0]):
                for half in ("gate", "up"):
                    single[name.replace("gate_up_proj", f"{expert}.{half}_proj.weight")] = (shape[1] // 2, shape[2])
        elif name.endswith("experts.down_proj"):
            single |= {name.replace("down_proj", f"{e}.down_proj.weight"): shape[1:] for e in range(shape[0])}
        else:
            single[name] = shape
    assert {slot.name: slot.shape for slot in slots_of(config, single) if slot.part == Part.TEXT} == single


def test_a_tied_head_may_be_absent_or_there():
    config, shapes = transformers_model("Qwen3_5", "ForCausalLM")
    head = next(slot for slot in slots_of(config | {"tie_word_embeddings": True}, shapes) if "lm_head" in slot.name)
    assert head.optional


def test_tiny_checkpoints_are_complete(tiny_model, tmp_path):
    assert inspect_checkpoint(tiny_model).complete
    for draft in ("dflash", "dflash2"):
        make_tiny_draft(tmp_path / draft, draft)
        inspection = inspect_checkpoint(tmp_path / draft)
        assert inspection.complete, inspection.problems()
        assert {slot.part for slot, _ in inspection.fits} == {Part.DRAFT}


# --- what must not pass -----------------------------------------------------------------------------------------------

K_PROJ = "model.layers.3.self_attn.k_proj.weight"


@pytest.fixture
def changed(tiny_model, tmp_path):
    """Return a copy of the tiny model after a change to its tensors, in one file or in two."""

    def make(change, *, shards=1):
        shutil.copytree(tiny_model, tmp_path / "changed", dirs_exist_ok=True)
        tensors = load_file(tiny_model / "model.safetensors")
        change(tensors)
        (tmp_path / "changed" / "model.safetensors").unlink()
        names = sorted(tensors)
        mapped = {name: f"model-{i % shards}.safetensors" for i, name in enumerate(names)}
        for file in set(mapped.values()):
            save_file({name: tensors[name] for name in names if mapped[name] == file}, tmp_path / "changed" / file)
        (tmp_path / "changed" / INDEX).write_text(json.dumps({"weight_map": mapped}))
        return tmp_path / "changed"

    return make


def test_shards_are_complete(changed):
    assert inspect_checkpoint(changed(lambda tensors: None, shards=3)).complete


@pytest.mark.parametrize(
    ("change", "part", "says"),
    [
        (lambda t: t.pop(K_PROJ), Part.TEXT, f"missing: {K_PROJ} [128, 256]"),
        (lambda t: t.pop("mtp.fc.weight"), Part.MTP, "missing: mtp.fc.weight [256, 512]"),
        (
            lambda t: t.update({K_PROJ: t[K_PROJ][:64].clone()}),
            Part.TEXT,
            f"{K_PROJ} is [64, 256] and should be [128, ",
        ),
        (lambda t: t.update({"model.layers.4.mlp.up_proj.weight": t[K_PROJ].clone()}), Part.TEXT, "unknown: model.lay"),
        (lambda t: [t.pop(name) for name in list(t) if ".1." in name], Part.TEXT, "and 6 more"),
        (lambda t: t.update({K_PROJ: t[K_PROJ].to(torch.int8)}), Part.TEXT, f"wrong type: {K_PROJ} is I8"),
        (lambda t: t.update({K_PROJ: t[K_PROJ].to(torch.float8_e4m3fn)}), Part.TEXT, f"type: {K_PROJ} is F8_E4M3"),
    ],
    ids=["a piece of a stacked parameter", "mtp", "shape", "a layer too many", "a whole layer", "int8", "float8"],
)
def test_what_does_not_fit_is_named(changed, change, part, says):
    folder = changed(change, shards=2)
    assert not inspect_checkpoint(folder).complete
    with pytest.raises(CheckpointError) as refused:
        require_parts(folder, {part})
    assert says in str(refused.value)
    if "missing" in says:
        require_parts(folder, {Part.TEXT, Part.MTP} - {part})  # the other model of the pair has all it needs


def test_types_that_convert_to_the_models_fit(changed):
    """As vLLM does, which copies each tensor into its parameter."""
    for dtype in (torch.float16, torch.float32, torch.float64):
        assert inspect_checkpoint(changed(lambda t, dtype=dtype: t.update({K_PROJ: t[K_PROJ].to(dtype)}))).complete


def test_a_quantised_checkpoint_is_not_called_incomplete(changed):
    folder = changed(lambda tensors: None)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "fp8"}}))
    with pytest.raises(CheckpointError, match="quantization_config; the table has no quantised checkpoints"):
        inspect_checkpoint(folder)


@pytest.mark.parametrize(
    ("family", "changes", "says"),
    [
        ("Qwen3_5", {"mtp_num_hidden_layers": 10**30}, "more than 1,000 tensors"),
        ("Qwen3_5", {"num_hidden_layers": 10**30, "layer_types": None}, "num_hidden_layers is 1000"),
        ("Qwen4Exp", {"split_ngram_parts": 10**30}, "more than 1,000 tensors"),
        ("Qwen4Exp", {"ngram_vocab_size_base": 10**30}, "ngram_vocab_size_base is 1000"),
        ("Qwen4Exp", {"heads_per_ngram": 10**9}, "heads of n-grams do not share 24 features"),
        ("Qwen4Exp", {"heads_per_ngram": 0}, "by zero"),
    ],
)
def test_sizes_that_no_model_has_end_at_once(monkeypatch, family, changes, says):
    monkeypatch.setattr(layout, "MOST_TENSORS", 1_000)
    config, _ = transformers_model(family, "ForCausalLM")
    with pytest.raises(CheckpointError, match=says):
        slots_of(config | changes, ())


def test_what_the_table_does_not_know_passes(changed):
    folder = changed(lambda tensors: tensors.pop(K_PROJ))
    config = json.loads((folder / "config.json").read_text())
    for other in ({"architectures": ["LlamaForCausalLM"]}, {"quantization_config": {"quant_method": "fp8"}}):
        (folder / "config.json").write_text(json.dumps(config | other))
        require_parts(folder, {Part.TEXT})


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ('{"a": ' + "9" * 5_000 + "}", "no JSON"),
        ("[]", "no JSON object"),
        ("{}", "not in the table"),
        ('{"architectures": ["LlamaForCausalLM"]}', "LlamaForCausalLM is not in the table; known: Qwen3_5ForCausalLM"),
        ('{"architectures": ["Qwen3_5ForCausalLM"]}', "no entry 'hidden_size'"),
    ],
)
def test_a_wrong_configuration_is_said(tmp_path, config, says):
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(CheckpointError, match=says.replace("[", r"\[")):
        inspect_checkpoint(tmp_path)


WRONG_ENTRIES = [
    ({"hidden_size": "big"}, "hidden_size is 'big' and should be a whole number"),
    ({"vocab_size": 1.5}, "vocab_size is 1.5 and should be a whole number"),
    ({"num_attention_heads": True}, "num_attention_heads is True and should be a whole number"),
    ({"intermediate_size": [1]}, "intermediate_size is [1] and should be a whole number"),
    ({"num_hidden_layers": -1}, "num_hidden_layers is -1 and should be a whole number"),
    ({"layer_types": "full_attention"}, "layer_types is 'full_attention' and should be a list"),
]


@pytest.mark.parametrize(("changes", "says"), WRONG_ENTRIES, ids=str)
def test_an_entry_of_a_wrong_type_is_named(changed, changes, says):
    folder = changed(lambda tensors: None)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(CheckpointError) as refused:
        inspect_checkpoint(folder)
    assert str(refused.value) == f"config.json does not describe a qwen3.5 model: {says}"
    nested, shapes = transformers_model("Qwen3_5", "ForConditionalGeneration")
    with pytest.raises(CheckpointError, match=re.escape(says)):
        slots_of(nested | {"text_config": nested["text_config"] | changes}, shapes)
    with pytest.raises(CheckpointError, match="vision_config is 3 and should be an object"):
        slots_of(nested | {"vision_config": 3}, shapes)


class Recorded(dict):
    """A configuration that notes which entries are read, and what they are."""

    def __init__(self, entries, read):
        super().__init__(entries)
        self.read = read

    def __getitem__(self, name):
        value = super().__getitem__(name)
        self.read[name] = value
        return Recorded(value, self.read) if isinstance(value, dict) else value

    def get(self, name, default=None):
        try:
            return self[name]
        except KeyError:
            return default


def test_every_entry_that_is_counted_with_has_its_type_checked(tmp_path):
    read = {}
    kinds = ("ForCausalLM", "ForConditionalGeneration")
    configs = [transformers_model(family, kind)[0] for family in FAMILIES for kind in kinds]
    for draft in ("dflash", "dflash2"):
        make_tiny_draft(tmp_path / draft, draft)
        configs.append(json.loads((tmp_path / draft / "config.json").read_text()))
    for config in configs:
        _, slots = layout._layouts()[config["architectures"][0]]
        assert list(slots(Recorded(config | {"mtp_num_hidden_layers": 1}, read), {"model.visual.pos_embed.weight"}))
    numbers = {name for name, value in read.items() if type(value) is int}
    assert numbers <= layout.SIZES
    assert {name for name, value in read.items() if isinstance(value, list)} <= layout.LISTS
    assert {name for name, value in read.items() if isinstance(value, dict)} <= set(layout.PARTS)
    assert layout.SIZES - numbers <= {"head_dim", "full_attention_interval", "mtp_num_hidden_layers"}


class Qwen3_5ForCausalLM:  # noqa: N801 (the names that vLLM's classes have)
    def named_parameters(self):
        return iter([("model.norm.weight", None)])


class Qwen3_5MTP(Qwen3_5ForCausalLM):  # noqa: N801
    pass


class Multimodal(Qwen3_5ForCausalLM):
    def named_parameters(self):
        return iter([("visual.pos_embed.weight", None)])


@pytest.mark.parametrize(
    ("model", "parts"),
    [
        (Qwen3_5ForCausalLM(), {Part.TEXT, Part.DRAFT}),
        (Qwen3_5MTP(), {Part.MTP}),
        (Multimodal(), {Part.TEXT, Part.DRAFT, Part.VISION}),
    ],
)
def test_a_model_needs_its_own_part(model, parts):
    assert checkpoint_check._parts_of(model) == parts


def test_the_check_comes_before_loading(changed):
    folder = changed(lambda tensors: tensors.pop(K_PROJ))
    loaded = []
    load = checkpoint_check._replace(lambda *args: loaded.append(args))
    loader = SimpleNamespace(_prepare_weights=lambda *args: (str(folder), [], True, INDEX))
    config = SimpleNamespace(model=str(folder), revision=None, quantization=None, hf_config_path=None, hf_overrides={})
    with pytest.raises(CheckpointError, match=K_PROJ):
        load(loader, Qwen3_5ForCausalLM(), config)
    assert not loaded
    load(loader, Qwen3_5MTP(), config)
    assert len(loaded) == 1
    (folder / "config.json").rename(folder / "params.json")  # of another format
    load(loader, Qwen3_5ForCausalLM(), config)
    assert len(loaded) == 2


def test_what_vllm_passes_over_is_no_fault(changed):
    skipped = AutoWeightsLoader.REMOVE_UNUSED_ROTARY_EMBEDS_MAPPER.orig_to_new_substr
    assert skipped
    names = [f"model.layers.3.self_attn.{name}" for name in skipped]
    require_parts(changed(lambda tensors: tensors.update({name: torch.zeros(4) for name in names})), {Part.TEXT})


# --- the command ------------------------------------------------------------------------------------------------------


def command(*arguments):
    code = "from infernix_plugin.entrypoints.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, "inspect-checkpoint", *map(str, arguments)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_the_command_shows_where_everything_goes(tiny_model):
    done = command(tiny_model)
    assert done.returncode == 0, done.stderr
    assert "model.layers.*.self_attn.qkv_proj.weight [k]" in done.stdout
    assert "mtp: 15 tensors" in done.stdout
    assert done.stdout.rstrip().endswith("complete: nothing is missing, nothing is unknown")
    every = command(tiny_model, "--all")
    assert "model.layers.2.linear_attn.in_proj_qkvz.weight [q, k, v]" in every.stdout


def test_the_command_as_json(changed):
    folder = changed(lambda tensors: tensors.pop(K_PROJ), shards=2)
    done = command(folder, "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["family"] == "qwen3.5"
    assert found["complete"] is False
    assert found["missing"] == [{"name": K_PROJ, "part": "text", "shape": [128, 256]}]
    assert found["unknown"] == found["misshapen"] == found["mistyped"] == []
    names = {tensor["name"]: tensor for tensor in found["tensors"]}
    assert len(names) == 70
    assert names["model.layers.3.self_attn.q_proj.weight"]["into"] == "model.layers.3.self_attn.qkv_proj.weight"
    assert names["model.layers.3.self_attn.q_proj.weight"]["shard"] == "q"


def test_the_command_on_a_truncated_file(changed):
    folder = changed(lambda tensors: None)
    file = folder / "model-0.safetensors"
    file.write_bytes(file.read_bytes()[:-10])
    done = command(folder)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("infernix: error: model-0.safetensors is truncated: 10 of ")
    assert command(folder / "nowhere").returncode == 2
