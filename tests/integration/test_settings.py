"""Settings from additional_config and from the environment."""

import subprocess
import sys

import pytest

from infernix_plugin import settings
from infernix_plugin.errors import SettingsError


def test_defaults():
    loaded = settings.load(None, {})
    assert loaded.cache_bytes == 256 << 20
    assert loaded.max_cold_compiles == 2
    assert loaded.grammar_options() == settings.GrammarOptions()


def test_the_section_wins_over_the_environment():
    loaded = settings.load(
        {"infernix": {"cache_bytes": 5}, "other": 1},
        {"INFERNIX_CACHE_BYTES": "7", "INFERNIX_MAX_WHITESPACE": "3", "INFERNIX_DISABLE": "0", "INFERNIX_OTHER": "x"},
    )
    assert loaded.cache_bytes == 5
    assert loaded.grammar_options().max_whitespace == 3


@pytest.mark.parametrize(
    ("config", "environment", "says"),
    [
        ({"infernix": {"cache_byte": 1}}, {}, "no setting 'cache_byte'; did you mean cache_bytes?"),
        ({"infernix": {"cache_bytes": -1}}, {}, 'additional_config["infernix"]["cache_bytes"] = -1'),
        ({"infernix": {"unknown_keywords": "maybe"}}, {}, "'refuse' or 'ignore'"),
        ({"infernix": 3}, {}, "must be an object, not int"),
        ({"infernx": {"cache_bytes": 1}}, {}, 'has no section "infernx"; did you mean "infernix"?'),
        ({"infrenix": {}, "infernix": {}}, {}, 'has no section "infrenix"; did you mean "infernix"?'),
        ({"Infernix": {}}, {}, 'has no section "Infernix"; did you mean "infernix"?'),
        ({"infernix_plugin": {}}, {}, 'has no section "infernix_plugin"; did you mean "infernix"?'),
        (
            {"infernix": {"ngram_max_match": 2}},
            {},
            "ngram_min_match <= ngram_max_match < ngram_window must hold: 3, 2,",
        ),
        ({}, {"INFERNIX_MAX_COLD_COMPILES": "many"}, "INFERNIX_MAX_COLD_COMPILES = 'many'"),
        ({}, {"INFERNIX_MAX_CHOICE": "3"}, "no setting INFERNIX_MAX_CHOICE; did you mean INFERNIX_MAX_CHOICES?"),
        ({}, {"INFERNIX_CACHE_BYTE": ""}, "did you mean INFERNIX_CACHE_BYTES?"),
        ({}, {"INFERNIX_DISABLED": "1"}, "did you mean INFERNIX_DISABLE?"),
    ],
)
def test_mistakes_are_one_line(config, environment, says):
    with pytest.raises(SettingsError) as refused:
        settings.load(config, environment)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_other_sections_belong_to_others():
    others = {"infer": 1, "inference": {"cache_bytes": 1}, "inferno": {}, "cache_bytes": 1, "phoenix": 1, 3: 4}
    assert settings.load(others, {}) == settings.load(None, {})


def test_a_variable_that_is_like_no_setting_is_named_in_the_log(monkeypatch, caplog):
    monkeypatch.setenv("INFERNIX_OTHER", "x")
    monkeypatch.setattr(settings, "_current", None)
    settings.configure(None)
    assert "INFERNIX_OTHER is no setting" in caplog.text


def test_a_mistake_stops_the_start_before_the_model_is_read(tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from vllm import LLM\n"
            f"LLM({str(tmp_path / 'no-such-model')!r}, additional_config={{'infernix': {{'cache': 1}}}})",
        ],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("infernix-plugin: additional_config[")
    assert "Traceback" not in done.stderr


def test_what_was_set_travels_and_the_variables_of_other_machines_do_not_count(monkeypatch):
    monkeypatch.setattr(settings, "_current", None)
    monkeypatch.setenv("INFERNIX_NGRAM_MIN_MATCH", "2")
    front = settings.configure({"infernix": {"max_nesting": 9}, "other": 1})
    config = settings.travelling({"infernix": {"max_nesting": 9}, "other": 1}, front)
    assert config == {"infernix": {"max_nesting": 9, "ngram_min_match": 2}, "other": 1}
    monkeypatch.setenv("INFERNIX_NGRAM_MIN_MATCH", "3")
    monkeypatch.setenv("INFERNIX_MAX_CHOICES", "5")
    assert settings.adopt(config) == front == settings.current()


def test_nothing_travels_where_nothing_was_set():
    assert settings.travelling({"other": 1}, settings.load(None, {})) == {"other": 1}
    assert settings.travelling(None, settings.load(None, {"INFERNIX_MAX_CHOICES": "5"})) is None
