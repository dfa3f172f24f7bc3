"""The seam framework, and every seam against the installed vLLM."""

import importlib
import os
import subprocess
import sys
import textwrap
from types import ModuleType

import pytest

from infernix_plugin import seams
from infernix_plugin.errors import UnsupportedVllmError
from infernix_plugin.seams import post_import, versions
from infernix_plugin.seams.seam import ORIGINAL, Seam


def greet_seam(module="seam_target", *, parameters=("name",), attribute="greet", **kwargs):
    def replace(original):
        return lambda name: original(name).upper()

    return Seam(module, attribute, "test", replace, parameters, **kwargs)


@pytest.fixture
def target(tmp_path, monkeypatch):
    (tmp_path / "seam_target.py").write_text("def greet(name):\n    return 'hello ' + name\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", [f for f in sys.meta_path if not isinstance(f, post_import._Finder)])
    monkeypatch.delitem(sys.modules, "seam_target", raising=False)
    yield "seam_target"
    sys.modules.pop("seam_target", None)


@pytest.mark.parametrize("seam", seams.ALL, ids=lambda seam: seam.target)
def test_every_seam_fits_the_installed_vllm(seam):
    if versions.installed_release() not in seam.releases:
        pytest.skip("the seam repairs a fault that the installed vLLM release does not have")
    module = importlib.import_module(seam.module)
    original = seam.check(module)
    assert callable(original)
    assert not hasattr(original, ORIGINAL), "the plugin must not be active in the test process"
    assert callable(seam.replace(original))


def test_seams_are_distinct_and_explained():
    targets = [(seam.target, release) for seam in seams.ALL for release in seam.releases]
    assert len(set(targets)) == len(targets)
    assert all(len(seam.reason) > 20 for seam in seams.ALL)


def test_applies_when_the_module_is_imported(target):
    post_import.install([greet_seam()])
    assert target not in sys.modules
    module = importlib.import_module(target)
    assert module.greet("a") == "HELLO A"


def test_applies_at_once_to_an_imported_module(target):
    module = importlib.import_module(target)
    post_import.install([greet_seam()])
    assert module.greet("a") == "HELLO A"


def test_applies_where_the_function_was_imported_by_name(target, monkeypatch):
    module = importlib.import_module(target)
    user, other = ModuleType("seam_user"), ModuleType("seam_other")
    user.greet, other.greet = module.greet, str
    for each in (user, other):
        monkeypatch.setitem(sys.modules, each.__name__, each)
    post_import.install([greet_seam()])
    assert user.greet is module.greet
    assert other.greet is str


def test_a_place_of_use_is_replaced_alone(target, monkeypatch):
    module = importlib.import_module(target)
    user = ModuleType("seam_user")
    user.greet = module.greet
    monkeypatch.setitem(sys.modules, "seam_user", user)
    post_import.install([greet_seam("seam_user")])
    assert user.greet("a") == "HELLO A"
    assert module.greet("a") == "hello a"


def test_is_idempotent(target):
    seam = greet_seam()
    post_import.install([seam])
    module = importlib.import_module(target)
    once = module.greet
    post_import.install([seam])
    assert module.greet is once
    assert sum(isinstance(finder, post_import._Finder) for finder in sys.meta_path) == 1


def test_survives_a_reload_and_leaves_the_loader_alone(target):
    post_import.install([greet_seam()])
    module = importlib.import_module(target)
    assert module.__spec__.loader is module.__loader__
    assert type(module.__loader__).__name__ == "SourceFileLoader"
    importlib.reload(module)
    assert module.greet("a") == "HELLO A"


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (greet_seam(parameters=("name", "title")), "greet(name)"),
        (greet_seam(attribute="welcome"), "welcome does not exist"),
        (greet_seam(members={"inner": ("self",)}), "greet.inner does not exist"),
    ],
)
def test_a_moved_target_stops_the_import_with_one_line(target, broken, says):
    post_import.install([broken])
    with pytest.raises(UnsupportedVllmError) as refused:
        importlib.import_module(target)
    line = str(refused.value)
    assert says in line
    assert "0.32.x and 0.33.x" in line
    assert "\n" not in line


def test_other_releases_and_unneeded_replacements_are_left_alone(target):
    post_import.install(
        [greet_seam(releases=((0, 31),), parameters=("moved",)), Seam(target, "greet", "test", lambda f: f, ("name",))]
    )
    module = importlib.import_module(target)
    assert module.greet("a") == "hello a"
    assert not hasattr(module.greet, ORIGINAL)


def test_members_are_compared(monkeypatch):
    module = ModuleType("seam_holder")

    class Holder:
        def __init__(self, config):
            self.config = config

        def act(self, request):
            return request

    module.Holder = Holder
    fits = Seam("seam_holder", "Holder", "test", lambda original: original, ("config",), {"act": ("self", "request")})
    assert fits.check(module) is Holder
    moved = Seam("seam_holder", "Holder", "test", lambda original: original, ("config",), {"act": ("self", "token")})
    with pytest.raises(UnsupportedVllmError, match=r"Holder\.act\(self, request\)"):
        moved.check(module)


def test_a_method_that_is_only_inherited_has_moved():
    module = ModuleType("seam_holder")

    class Interface:
        def act(self, request): ...

    class Holder(Interface):
        def act_now(self, request): ...

    module.Holder = Holder
    moved = Seam("seam_holder", "Holder.act", "test", lambda original: original, ("self", "request"))
    with pytest.raises(UnsupportedVllmError, match=r"seam_holder\.Holder does not define act .* inherits"):
        moved.check(module)


@pytest.mark.parametrize(
    ("version", "supported"),
    [
        ("0.32.0", True),
        ("0.32.1+cpu", True),
        ("0.33.0rc1", True),
        ("0.31.9", False),
        ("0.34.0", False),
        ("0.3.2", False),
        ("dev", False),
    ],
)
def test_supported_versions(monkeypatch, version, supported):
    monkeypatch.setattr(versions.metadata, "version", lambda name: version)
    if supported:
        assert versions.require_supported() == version
    else:
        with pytest.raises(UnsupportedVllmError, match=r"0\.32\.x and 0\.33\.x"):
            versions.require_supported()


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **environment},
    )


LOAD = """
import sys
from vllm.plugins import load_general_plugins
load_general_plugins()
"""


def test_an_unsupported_vllm_refuses_to_start_with_one_line():
    done = run(
        """
        import importlib.metadata as metadata
        real = metadata.version
        metadata.version = lambda name: "0.31.2" if name.startswith("vllm") else real(name)
        """
        + "\n"
        + textwrap.indent(LOAD, " " * 8)
        + "\n        print('started')\n"
    )
    assert done.returncode == 1
    assert "started" not in done.stdout
    ours = [line for line in done.stderr.splitlines() if line.startswith("infernix-plugin")]
    assert len(ours) == 1
    assert "0.31.2" in ours[0]
    assert "0.32.x and 0.33.x" in ours[0]
    assert "Traceback" not in done.stderr


def test_registering_twice_patches_once_and_imports_nothing():
    done = run(
        """
        import sys
        from infernix_plugin.plugin import register
        register(); register()
        assert not {"vllm", "torch", "xgrammar", "transformers", "torchvision"} & set(sys.modules)
        import importlib
        from infernix_plugin import seams
        from infernix_plugin.seams.seam import ORIGINAL
        from infernix_plugin.seams.versions import installed_release
        for seam in seams.ALL:
            module = importlib.import_module(seam.module)
            assert installed_release() not in seam.releases or seam.applied(module), seam.target
        register()
        from vllm.v1.engine import core
        from infernix_plugin.structured_output.manager import InfernixManager
        assert core.StructuredOutputManager is InfernixManager
        assert not hasattr(InfernixManager.__dict__[ORIGINAL], ORIGINAL)
        print("ok")
        """
    )
    assert done.stdout.strip().endswith("ok"), done.stderr


def test_disabled_plugin_leaves_vllm_untouched():
    done = run(
        LOAD
        + textwrap.dedent(
            """
            import importlib
            assert "infernix_plugin.seams.table" not in sys.modules
            for name, attribute in [
                ("vllm.v1.engine.core", "StructuredOutputManager"),
                ("vllm.v1.core.sched.scheduler", "Scheduler"),
                ("vllm.v1.engine.output_processor", "OutputProcessor"),
                ("vllm.sampling_params", "SamplingParams"),
                ("vllm.renderers.online_renderer", "OnlineRenderer"),
            ]:
                thing = getattr(importlib.import_module(name), attribute)
                assert thing.__module__.startswith("vllm."), thing
                assert not [m for m in vars(thing).values() if hasattr(m, "__infernix_original__")]
            assert "infernix_plugin.seams.post_import" not in sys.modules
            print("ok")
            """
        ),
        INFERNIX_DISABLE="1",
    )
    assert done.stdout.strip().endswith("ok"), done.stderr
