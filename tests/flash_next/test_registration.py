"""Whose Flash-Next vLLM runs: ours on the CPU, its own everywhere else."""

import os
import subprocess
import sys

CODE = """
from infernix_plugin.seams.cpu_faults import install_import_repairs
install_import_repairs()
import sys
import vllm.model_executor.model_loader.weight_utils as weight_utils
import vllm.platforms as platforms
from vllm.model_executor.models.registry import ModelRegistry
from infernix_plugin.plugin import register

SHARD = "model.layers.1.ple.ple_embedding.ngram_embedding.shard_0.weight"
ARCHITECTURES = [name for name in ModelRegistry.models if name.startswith("Qwen4Exp")]
print(*ARCHITECTURES)


class Gpu(type(platforms.current_platform)):
    def is_cpu(self):
        return False

    def is_cuda(self):
        return True


def state():
    models = {name: (ModelRegistry.models[name].module_name, ModelRegistry.models[name].class_name)
              for name in ARCHITECTURES}
    return models, weight_utils.should_skip_weight(SHARD, None)


untouched, every_model = state(), dict(ModelRegistry.models)
real = platforms.current_platform
platforms._current_platform = Gpu()
register()
assert state() == untouched and dict(ModelRegistry.models) == every_model, "changed on a GPU"
print("GPU", *untouched[0].values(), untouched[1])

platforms._current_platform = real
register()
models, skipped = state()
print("CPU", *models.values(), skipped)
others = {name: entry for name, entry in ModelRegistry.models.items() if name not in ARCHITECTURES}
assert all(every_model[name] is entry for name, entry in others.items()), "another model changed"
assert not weight_utils.should_skip_weight("model.layers.1.ple.key_proj.weight", None)
assert "infernix_plugin.model_executor.models.flash_next.model" not in sys.modules, "imported before it is needed"
"""


def test_on_a_gpu_nothing_changes_and_on_the_cpu_the_models_are_ours() -> None:
    environment = {**os.environ, "VLLM_PLUGINS": ""}
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    names, gpu, cpu = done.stdout.splitlines()[-3:]
    names = sorted(names.split())
    assert names == ["Qwen4ExpForCausalLM", "Qwen4ExpForConditionalGeneration", "Qwen4ExpMTP"]
    assert gpu.endswith("False")
    assert all(f"('vllm.models.qwen4_exp', '{name}')" in gpu for name in names)
    package = "infernix_plugin.model_executor.models.flash_next"
    assert cpu.endswith("True")
    assert all(f"('{package}.{'mtp' if 'MTP' in name else 'model'}', '{name}')" in cpu for name in names)
