"""Is there a checkpoint under this name? Asked first: vLLM takes a minute to say no, most of it waiting for the hub."""

from __future__ import annotations

import os
from pathlib import Path

from infernix_plugin.errors import CheckpointError, excerpt
from infernix_plugin.model_executor.weights.inspection import read_config

PATIENCE = 5.0
"""Seconds that the hub has to answer."""

_CONFIGURATIONS = ("config.json", "params.json")


def require_model(model: str) -> None:
    """Refuse what :func:`require_path` does, and a name that no hub answers for.

    What is cached, and what only vLLM can judge (other kinds of addresses, files of other formats, names that the hub
    answers for but not to this user), passes.

    Raises:
        CheckpointError: one line that says which it is.
    """
    if require_path(model):
        _require_on_hub(model)


def require_path(model: str) -> bool:
    """Refuse a directory without a configuration that can be read, and a path where nothing is. Asks nobody else.

    Returns:
        Whether nothing of that name is here, so that it can only be a name on the hub.

    Raises:
        CheckpointError: one line that says which it is.
    """
    if os.environ.get("VLLM_MODEL_REDIRECT_PATH"):  # a file of vLLM's that says what else a name stands for
        return False
    if os.path.isdir(model):
        found = [name for name in _CONFIGURATIONS if (Path(model) / name).exists()]
        if not found:
            raise CheckpointError(f"the directory {excerpt(model)} has no config.json")
        if found == ["config.json"]:
            read_config(Path(model))
        return False
    if os.path.exists(model) or ":" in model or os.environ.get("VLLM_USE_MODELSCOPE"):
        return False
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(model)
    except HFValidationError:
        raise CheckpointError(_nothing(model)) from None
    return True


def _nothing(model: str) -> str:
    return f"there is no directory {excerpt(model)}"


def _require_on_hub(model: str) -> None:
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    nothing = _nothing(model)
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
