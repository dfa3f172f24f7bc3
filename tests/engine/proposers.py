"""Every way in which the plugin's engine proposes drafts, as engine arguments, on the tiny checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infernix_plugin.model_executor.tiny import make_tiny_draft

DRAFTS = 3
SAMPLED = {"draft_sample_method": "probabilistic"}
"""Drafts are drawn from the drafter's distribution, their q; otherwise they are its best guess, which is one-hot."""


@dataclass(frozen=True)
class Proposer:
    """vLLM's ``speculative_config``, a draft model by the name of its kind, and settings of the plugin."""

    speculation: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)


_MTP = {"method": "mtp"}
_DFLASH = {"method": "dflash", "model": "dflash"}
_DFLASH2 = {"method": "dflash", "model": "dflash2"}
_COPIES = {"ngram_copies": True, "ngram_min_match": 1}
"""One token is enough: the texts are short, and a wrong copy is as good a test as a right one."""
_FORCED = {"grammar_drafts": True}

NONE = "none"
PROPOSERS = {
    "MTP, sampled": Proposer(_MTP | SAMPLED),
    "DFlash2": Proposer(_DFLASH2 | SAMPLED),
    "n-gram copies": Proposer({"method": "ngram"}, _COPIES),
    "grammar, else MTP, sampled": Proposer(_MTP | SAMPLED, _FORCED),
    "MTP, greedy": Proposer(_MTP),
    "DFlash, greedy": Proposer(_DFLASH),
    "DFlash, sampled": Proposer(_DFLASH | SAMPLED),
    "n-gram copies, else MTP, sampled": Proposer(_MTP | SAMPLED, _COPIES),
    "grammar, else MTP, greedy": Proposer(_MTP, _FORCED),
    "grammar, else n-gram copies, else DFlash2": Proposer(_DFLASH2 | SAMPLED, _FORCED | _COPIES),
}


def engine_arguments(name: str, drafts: Path) -> dict[str, Any]:
    """Return the engine's arguments; a draft model is made under ``drafts`` if it is not there."""
    if name == NONE:
        return {}
    proposer = PROPOSERS[name]
    speculation = proposer.speculation | {"num_speculative_tokens": DRAFTS}
    if "model" in speculation:
        draft = drafts / speculation["model"]
        if not draft.exists():
            make_tiny_draft(draft, speculation["model"])
        speculation["model"] = str(draft)
    settings = {"grammar_drafts": False} | proposer.settings
    return {"speculative_config": speculation, "additional_config": {"infernix": settings}}
