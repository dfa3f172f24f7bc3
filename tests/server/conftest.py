"""The real clients, against the tiny server."""

import anthropic
import openai
import pytest


@pytest.fixture(scope="module")
def client(tiny_server):
    return openai.OpenAI(base_url=f"{tiny_server.url}/v1", api_key="none", max_retries=0, timeout=600)


@pytest.fixture(scope="module")
def claude(tiny_server):
    return anthropic.Anthropic(base_url=tiny_server.url, api_key="none", max_retries=0, timeout=600)
