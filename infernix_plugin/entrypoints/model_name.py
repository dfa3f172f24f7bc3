"""Is there a checkpoint under this name? Asked first: vLLM takes a minute to say no, most of it waiting for the hub."""

from __future__ import annotations

import os
from pathlib import Path

from infernix_plugin.errors import CheckpointError, excerpt

PATIENCE = 5.0
"""Seconds that the hub has to answer."""

_CONFIGURATIONS = ("config.json", "params.json")


def require_model(model: str) -> None:
    """Refuse a directory without a configuration, a path where nothing is, and a name that no hub answers for.

    What is cached, and what only vLLM can judge (other kinds of addresses, files of other formats, names that the hub
    answers for but not to this user), passes.

    Raises:
        CheckpointError: one line that says which it is.
    """
    if os.path.isdir(model):
        if not any((Path(model) / name).exists() for name in _CONFIGURATIONS):
            raise CheckpointError(f"the directory {excerpt(model)} has no config.json")
    elif not (os.path.exists(model) or ":" in model or os.environ.get("VLLM_USE_MODELSCOPE")):
        _require_on_hub(model)


def _require_on_hub(model: str) -> None:
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    nothing = f"there is no directory {excerpt(model)}"
    try:
        validate_repo_id(model)
    except HFValidationError:
        raise CheckpointError(nothing) from None
    if (Path(constants.HF_HUB_CACHE) / f"models--{model.replace('/', '--')}").is_dir():
        return
    if constants.HF_HUB_OFFLINE:
        raise CheckpointError(f"{nothing}, no such model is cached, and HF_HUB_OFFLINE is set")
    try:
        HfApi().model_info(model, timeout=PATIENCE)
    except GatedRepoError:
        return
    except RepositoryNotFoundError:
        raise CheckpointError(f"{nothing}, and the hub has no model of that name (or a private one)") from None
    except Exception as error:  # whatever the hub's client raises: every release has another library below it
        raise CheckpointError(
            f"{nothing}, no such model is cached, and the hub cannot be asked: {type(error).__name__}: {error}"
        ) from None
