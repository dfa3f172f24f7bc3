"""Every family and mode of vLLM's CPU engine against transformers: rows of the table that ``benchmarks.parity`` prints.

With ``INFERNIX_LONG_TESTS=1`` it is the whole table, a process for each family. Otherwise one process runs the engines
in ``SHORT``; what Flash-Next says is judged in ``tests/flash_next``.
"""

import os
from dataclasses import replace

import pytest

from benchmarks.parity import HEADINGS, page
from infernix_plugin.model_executor.weights.inspection import inspect_checkpoint
from infernix_plugin.model_executor.weights.layout import Part
from tests.parity.checkpoints import FAMILIES, MULTIMODAL, make_checkpoint
from tests.parity.engine_series import run_series
from tests.parity.modes import engines_of
from tests.parity.rows import rows_of

EVERYTHING = bool(os.environ.get("INFERNIX_LONG_TESTS"))
SHORT = {
    MULTIMODAL: {
        "plain": ["batched"],
        "mtp": ["MTP, k = 3", "MTP, k = 3, from the cache", "control: states not copied at borders of blocks"],
    },
    "qwen3.5-moe": {
        "plain": ["batched", "chunked"],
        "ngram": [
            "oracle drafts, three a row",
            "oracle drafts, one a row",
            "oracle drafts, none to three, preempted",
            "control: states not rolled back",
        ],
    },
}
"""Engines and their modes. The MoE family has every layer of the dense one and more; the multimodal one has other
names, sections of M-RoPE, and its MTP head drafts."""

pytestmark = [pytest.mark.engine, pytest.mark.timeout(3600 if EVERYTHING else 600)]


class Family:
    """A family's checkpoint, what its engines said, and their rows of the table."""

    def __init__(self, checkpoint, engines, results):
        self.checkpoint, self.rows = checkpoint, rows_of(checkpoint, engines, results)
        self.modes = {part.mode for engine in engines for part in engine.rounds}
        self._results = {engine.name: result for engine, result in zip(engines, results, strict=True)}

    def parameters(self, engine, part):
        found = self._results.get(engine, {}).get("parameters", {})
        return set(found[part]) if part in found else None


def wanted(name, engines):
    if EVERYTHING:
        return engines
    return [
        replace(one, rounds=tuple(part for part in one.rounds if part.mode in SHORT[name][one.name]))
        for one in engines
        if one.name in SHORT[name]
    ]


@pytest.fixture(scope="module", params=[[name] for name in FAMILIES] if EVERYTHING else [list(SHORT)], ids="+".join)
def families(request, tmp_path_factory):
    """Families whose engines share a process."""
    folder = tmp_path_factory.mktemp("parity")
    made = {name: make_checkpoint(name, folder / name, drafts=EVERYTHING) for name in request.param}
    engines = {name: wanted(name, engines_of(checkpoint)) for name, checkpoint in made.items()}
    results = iter(run_series([(made[name], one) for name in made for one in engines[name]], folder))
    return {name: Family(made[name], engines[name], [next(results) for _ in engines[name]]) for name in made}


def test_every_mode_says_what_transformers_says(families):
    """And the negative controls do not: see ``rows.py`` for the bounds."""
    wrong = [(name, row.mode, row.wrong) for name, family in families.items() for row in family.rows if row.wrong]
    assert not wrong
    for name, family in families.items():
        modes = set().union(*SHORT[name].values()) if not EVERYTHING else family.modes
        assert modes <= {row.mode for row in family.rows}


def test_the_page_has_a_row_for_every_mode_and_no_empty_cell(families):
    table = {name: family.rows for name, family in families.items()}
    lines = page(table).splitlines()
    for row in (row for rows in table.values() for row in rows):
        (line, *_) = (line for line in lines if line.startswith(f"| {row.mode} |"))
        cells = line.strip("|").split("|")
        assert len(cells) == len(HEADINGS)
        assert all(cell.strip() for cell in cells)
        assert not row.refused or row.refused in page(table)


def test_tensors_go_where_the_table_says(families):
    """vLLM's own parameters, of the target and of its drafter, are those that ``inspect-checkpoint`` names."""
    for name, family in families.items():
        found = inspect_checkpoint(family.checkpoint.model)
        assert found.complete
        if name == "flash-next":
            continue  # the plugin's own model
        target = {
            slot.into for slot, _ in inspect_checkpoint(family.checkpoint.reference).fits if slot.part == Part.TEXT
        }
        held = family.parameters("plain", "target")
        assert {one.removeprefix("language_model.") for one in held} == target, name
        shared = {"lm_head.weight", "model.embed_tokens.weight", "model.mask_embedding"}
        expected = {"mtp": {slot.into for slot, _ in found.fits if slot.part == Part.MTP}}
        for kind, draft in family.checkpoint.drafts.items():
            expected[kind] = {slot.into for slot, _ in inspect_checkpoint(draft).fits}
        for engine, slots in expected.items():
            drafter = family.parameters(engine, "drafter")
            assert drafter is None or drafter - shared == slots, (name, engine)
