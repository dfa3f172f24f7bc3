"""Whose Flash-Next vLLM runs, ours on the CPU and its own everywhere else, and the drafts that it refuses."""

import os
import subprocess
import sys

import pytest

from infernix_plugin.model_executor.tiny import make_tiny_draft

CODE = """
from infernix_plugin.seams.cpu_faults import install_import_repairs
install_import_repairs()
import importlib
import os
import sys
import vllm.config.vllm as vllm_config
import vllm.model_executor.model_loader.weight_utils as weight_utils
import vllm.platforms as platforms
from vllm.model_executor.models.registry import ModelRegistry
from infernix_plugin.plugin import register
from infernix_plugin.seams.flash_next import REGISTRATION
from infernix_plugin.seams.table import ALL

SHARD = "model.layers.1.ple.ple_embedding.ngram_embedding.shard_0.weight"
ARCHITECTURES = [name for name in ModelRegistry.models if name.startswith("Qwen4Exp")]
print("architectures", *ARCHITECTURES)


KIND = "cuda"


class Gpu(type(platforms.current_platform)):
    def is_cpu(self):
        return False

    def is_cuda(self):
        return KIND == "cuda"

    def is_rocm(self):
        return KIND == "rocm"


def state():
    models = {name: (ModelRegistry.models[name].module_name, ModelRegistry.models[name].class_name)
              for name in ARCHITECTURES}
    return models, weight_utils.should_skip_weight(SHARD, None)


MODELS_AND_RUNNER = ("vllm.model_executor.", "vllm.v1.worker.gpu_model_runner", "vllm.v1.worker.mamba_utils",
                     "vllm.v1.sample.")


def attributes():
    # What seams may replace in models, their layers and loaders, and in the first runner, as it is now.
    found = {}
    for seam in ALL:
        if seam.module.startswith(MODELS_AND_RUNNER):
            holder = importlib.import_module(seam.module)
            *path, last = seam.attribute.split(".")
            for part in path:
                holder = getattr(holder, part)
            found[seam.module, seam.attribute] = vars(holder)[last]
    return found


uncompiled = vllm_config.default_breakable_cudagraph_architectures()
assert len(uncompiled) > len(ARCHITECTURES) and uncompiled.issuperset(ARCHITECTURES)
untouched, every_model, replaceable = state(), dict(ModelRegistry.models), attributes()
real = platforms.current_platform
platforms._current_platform = Gpu()
for KIND in ("cuda", "rocm"):
    register()
    assert state() == untouched and dict(ModelRegistry.models) == every_model, "changed on a GPU"
    if KIND == "cuda":  # what vLLM makes of the other it keeps
        assert vllm_config.default_breakable_cudagraph_architectures() == uncompiled
    changed = [name for name, value in attributes().items() if value is not replaceable[name]]
    assert not changed, changed
print("GPU", *untouched[0].values(), untouched[1])

platforms._current_platform = real
register()
unchanged = [name for name, value in attributes().items() if value is replaceable[name]]
assert unchanged == [(REGISTRATION.module, REGISTRATION.attribute)], unchanged  # it replaces entries, no attribute
models, skipped = state()
print("CPU", *models.values(), skipped)
others = {name: entry for name, entry in ModelRegistry.models.items() if name not in ARCHITECTURES}
assert all(every_model[name] is entry for name, entry in others.items()), "another model changed"
assert not weight_utils.should_skip_weight("model.layers.1.ple.key_proj.weight", None)
assert "infernix_plugin.model_executor.models.flash_next.model" not in sys.modules, "imported before it is needed"
compiled_too = uncompiled - vllm_config.default_breakable_cudagraph_architectures()
assert compiled_too == set(ARCHITECTURES), compiled_too
assert "VLLM_USE_BREAKABLE_CUDAGRAPH" not in os.environ

del os.environ["VLLM_PLUGINS"]  # vLLM looks at a model's class in a process of its own, which needs the repairs
from vllm.engine.arg_utils import EngineArgs
compiled = EngineArgs(model=sys.argv[1], max_model_len=256).create_engine_config().compilation_config
assert compiled.mode != 0, "vLLM does not compile the model"
speculation = {"method": "dflash", "model": sys.argv[2], "num_speculative_tokens": 3}
try:
    EngineArgs(model=sys.argv[1], max_model_len=256, speculative_config=speculation).create_engine_config()
    print("accepted")
except Exception as error:
    print("refused", *str(error).split())
"""


@pytest.fixture(scope="module")
def said(flash_next, tmp_path_factory):
    """What one process says: the architectures, then a line for each platform and one about a DFlash draft."""
    draft = tmp_path_factory.mktemp("draft")
    make_tiny_draft(draft, "dflash")
    environment = {**os.environ, "VLLM_PLUGINS": "", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", CODE, str(flash_next), str(draft)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}


def test_on_a_gpu_nothing_changes_and_on_the_cpu_the_models_are_ours(said) -> None:
    gpu, cpu, names = said["GPU"], said["CPU"], sorted(said["architectures"].split()[1:])
    assert names == ["Qwen4ExpForCausalLM", "Qwen4ExpForConditionalGeneration", "Qwen4ExpMTP"]
    assert gpu.endswith("False")
    assert all(f"('vllm.models.qwen4_exp', '{name}')" in gpu for name in names)
    package = "infernix_plugin.model_executor.models.flash_next"
    assert cpu.endswith("True")
    assert all(f"('{package}.{'mtp' if 'MTP' in name else 'model'}', '{name}')" in cpu for name in names)


def test_dflash_drafts_are_refused_and_the_methods_named(said) -> None:
    assert "no drafts of method 'dflash' for flash-next on the CPU. Its methods are 'mtp', 'ngram'" in said["refused"]
