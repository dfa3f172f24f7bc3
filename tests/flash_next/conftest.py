"""The tiny Flash-Next checkpoint, what transformers makes of it, and prompts."""

import pytest
from tokenizers import Tokenizer

from infernix_plugin.model_executor.tiny import corpus, make_tiny_model
from tests.oracles.flash_next import Reference, quieten_head


@pytest.fixture(scope="session")
def flash_next(tmp_path_factory):
    """A complete checkpoint whose logits bfloat16 resolves well."""
    directory = tmp_path_factory.mktemp("models") / "flash-next"
    make_tiny_model(directory, family="flash-next")
    quieten_head(directory)
    return directory


@pytest.fixture(scope="session")
def reference(flash_next):
    return Reference(flash_next)


@pytest.fixture(scope="session")
def text(flash_next):
    """A long text in tokens."""
    tokenizer = Tokenizer.from_file(str(flash_next / "tokenizer.json"))
    return tokenizer.encode("\n".join(list(corpus.documents())[:60])).ids
