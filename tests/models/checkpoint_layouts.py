"""The tiny checkpoints in the layouts of released ones, loaded by vLLM; run as a script, it says what differs.

    python -m tests.models.checkpoint_layouts DIRECTORY  ->  one JSON object: layout -> names of parameters that differ

Equal parameters give equal logits, and a model loads in a second where an engine takes half a minute. In a process of
its own: vLLM's distributed state is one per process.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

Tensors = dict[str, Tensor]

TABLE = "model.layers.1.ple.ple_embedding.ngram_embedding."
VISION = {
    "depth": 1, "hidden_size": 64, "num_heads": 2, "intermediate_size": 96, "out_hidden_size": 256,
    "num_position_embeddings": 16, "patch_size": 4,
}  # fmt: skip
FAMILIES = {"qwen3.5": "Qwen3_5", "qwen3.5-moe": "Qwen3_5Moe", "flash-next": "Qwen4Exp"}


def one_by_one(tensors: Tensors) -> Tensors:
    """Give every expert tensors of its own."""
    found = {}
    for name, tensor in tensors.items():
        block, stacked, kind = name.rpartition(".experts.")
        if not stacked:
            found[name] = tensor
            continue
        for expert, part in enumerate(tensor):
            pieces = dict(zip(("gate_proj", "up_proj"), part.chunk(2), strict=True)) if "gate" in kind else {kind: part}
            found |= {f"{block}.experts.{expert}.{piece}.weight": value for piece, value in pieces.items()}
    return found


def nested(tensors: Tensors) -> Tensors:
    """Name them as multimodal checkpoints do."""
    inner = "model.language_model."
    return {(inner + name[6:] if name.startswith("model.") else name): value for name, value in tensors.items()}


def in_one_table(tensors: Tensors) -> Tensors:
    """Join the shards of the n-gram table."""
    shards = [tensors[f"{TABLE}shard_{number}.weight"] for number in range(4)]
    return {name: value for name, value in tensors.items() if TABLE not in name} | {f"{TABLE}weight": torch.cat(shards)}


def swapped(tensors: Tensors) -> Tensors:
    """Exchange two experts."""
    name = "model.layers.2.mlp.experts.down_proj"
    return tensors | {name: tensors[name][[1, 0, *range(2, len(tensors[name]))]]}


def multimodal(family: str) -> tuple[Callable[[dict[str, Any]], dict[str, Any]], Tensors]:
    """Return what nests a configuration, and a vision tower."""
    import transformers

    name = FAMILIES[family]
    vision = getattr(transformers, f"{name}VisionConfig")(**VISION)

    def config(text: dict[str, Any]) -> dict[str, Any]:
        inner = {key: value for key, value in text.items() if key != "architectures"}
        kind = text["model_type"].removesuffix("_text")
        outer = {"architectures": [f"{name}ForConditionalGeneration"], "model_type": kind, "text_config": inner}
        return {**outer, "vision_config": vision.to_dict(), "dtype": "bfloat16", "tie_word_embeddings": False}

    module = sys.modules[getattr(transformers, f"{name}ForConditionalGeneration").__module__]
    torch.manual_seed(0)
    tower = getattr(module, f"{name}VisionModel")(vision).to(torch.bfloat16)
    return config, {f"model.visual.{key}": value for key, value in tower.state_dict().items()}


class Checkpoints:
    """Writes variants of the tiny models below a directory."""

    def __init__(self, directory: Path) -> None:
        from infernix_plugin.model_executor.tiny import make_tiny_model

        self.directory = directory
        for family in FAMILIES:
            make_tiny_model(directory / family, family=family)

    def variant(self, family: str, name: str, change: Callable[[Tensors], Tensors], config: Any = dict) -> Path:
        """Write one in three files, with an index."""
        source, folder = self.directory / family, self.directory / name
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors"))
        (folder / "config.json").write_text(json.dumps(config(json.loads((source / "config.json").read_text()))))
        tensors = change(load_file(source / "model.safetensors"))
        files = {key: f"model-0000{1 + index % 3}-of-00003.safetensors" for index, key in enumerate(sorted(tensors))}
        for file in sorted(set(files.values())):
            part = {key: tensors[key].contiguous().clone() for key in files if files[key] == file}
            save_file(part, folder / file, metadata={"format": "pt"})
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
        return folder

    def saved_by_transformers(self, family: str, name: str) -> Path:
        """Write what transformers makes of one, in files of a megabyte; it drops the MTP head."""
        import transformers

        kind = getattr(transformers, f"{FAMILIES[family]}ForCausalLM")
        model = kind.from_pretrained(self.directory / family, dtype=torch.bfloat16)
        model.save_pretrained(self.directory / name, max_shard_size="1MB")
        for path in (self.directory / family).glob("*token*"):
            shutil.copy(path, self.directory / name)
        return self.directory / name


def parameters(folder: Path, *, mtp: bool = True) -> Tensors:
    """Load a target, and its MTP head, and return what they compute with, by name."""
    from vllm.config import set_current_vllm_config
    from vllm.distributed import ensure_model_parallel_initialized, init_distributed_environment
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader import get_model

    arguments = EngineArgs(
        model=str(folder),
        max_model_len=256,
        enforce_eager=True,
        language_model_only="vision_config" in json.loads((folder / "config.json").read_text()),
        speculative_config={"method": "mtp", "num_speculative_tokens": 2} if mtp else None,
    )
    config = arguments.create_engine_config()
    with set_current_vllm_config(config):
        if not torch.distributed.is_initialized():
            init_distributed_environment(1, 0, f"file://{folder}.store", 0, "gloo")
            ensure_model_parallel_initialized(1, 1)
        target = get_model(vllm_config=config)
        found = {f"target {name.replace('language_model.', '', 1)}": value for name, value in target.named_parameters()}
        for name, module in target.named_modules():
            if getattr(module, "table", None) is not None:
                found[f"table {name}"] = torch.cat(module.table.shards)
        if mtp:
            head = get_model(vllm_config=config, model_config=config.speculative_config.draft_model_config)
            found |= {f"head {name}": value for name, value in head.named_parameters()}
    return found


def layouts(made: Checkpoints) -> Iterator[tuple[str, str, Path, bool]]:
    """Yield name, family, folder and whether there is an MTP head."""
    for family in FAMILIES:
        config, tower = multimodal(family)
        apart = (lambda t: t) if family == "qwen3.5" else one_by_one

        def seen(tensors: Tensors, tower: Tensors = tower, apart: Any = apart) -> Tensors:
            return nested(apart(tensors)) | tower

        yield f"{family}, multimodal", family, made.variant(family, f"{family}-seen", seen, config), True
        yield f"{family}, by transformers", family, made.saved_by_transformers(family, f"{family}-saved"), False
    made.variant("flash-next", "flash-next-cut", lambda tensors: nested(in_one_table(tensors)))
    yield "flash-next, cut out, one table", "flash-next", made.directory / "flash-next-cut", True
    yield "control: experts swapped", "qwen3.5-moe", made.variant("qwen3.5-moe", "swapped", swapped), True


def main() -> None:
    """Compare all with the tiny models as they are."""
    torch.accelerator.empty_cache = lambda: None  # as vLLM's CPU worker does
    made = Checkpoints(Path(sys.argv[1]))
    # Experts first: vLLM makes the groups of the process for the first model.
    base = {family: parameters(made.directory / family) for family in reversed(FAMILIES)}
    found = {}
    for name, family, folder, mtp in layouts(made):
        expected = {key: value for key, value in base[family].items() if mtp or not key.startswith("head ")}
        loaded = parameters(folder, mtp=mtp)
        found[name] = sorted(
            key
            for key in expected.keys() | loaded.keys()
            if key not in loaded or key not in expected or not torch.equal(loaded[key], expected[key])
        )
    print(json.dumps({"compared": {family: len(values) for family, values in base.items()}, "differ": found}))


if __name__ == "__main__":
    from infernix_plugin.seams.cpu_faults import install_import_repairs

    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
    install_import_repairs()
    main()
