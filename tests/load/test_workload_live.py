"""Synthetic prompts against the real server: it counts exactly the tokens that were asked for."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from lab import engines
from lab.campaign import Arm, Limits
from lab.engines.server import Server
from lab.load import tokenizer, workload
from lab.workloads import Workload

FLAGS = {"n_parallel": 1, "n_ctx": 1024, "n_threads": 1}
ONE = {"max_tokens": 1, "n_predict": 1, "cache_prompt": False}


@pytest.fixture(scope="module")
def server(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The small real model."""
    arm = Arm(name="control", engine="llamacpp", checkpoint=str(checkpoint), flags=FLAGS)
    folder = tmp_path_factory.mktemp("server")
    with engines.get("llamacpp").launch(arm, folder, Limits(start_seconds=60), f"test-{uuid.uuid4().hex}") as running:
        yield running


@pytest.fixture(scope="module")
def found(server: Server) -> tokenizer.Tokenizer:
    """The server's tokenizer."""
    tokens = tokenizer.find(server.url, server.model)
    assert tokens is not None
    return tokens


def ask(server: Server, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = requests.post(server.url + path, json=body | ONE, timeout=60)
    answer.raise_for_status()
    return answer.json()


@pytest.mark.parametrize("tokens", [1, 37, 512])
def test_random_prompts_are_exactly_as_long_as_asked(server: Server, found: tokenizer.Tokenizer, tokens: int):
    asked = Workload(kind="random", output_tokens=2, concurrency=[1], input_tokens=tokens)
    prompts = workload.build(asked, "live", 2, tokenizer=found)
    for item in prompts.items:
        answer = ask(server, "/v1/completions", {"prompt": item["input_ids"]})
        assert answer["usage"]["prompt_tokens"] == tokens


def test_the_native_api_counts_the_same(server: Server, found: tokenizer.Tokenizer):
    asked = Workload(kind="random", output_tokens=2, concurrency=[1], input_tokens=50, api="llamacpp")
    item = workload.build(asked, "live", 1, tokenizer=found).items[0]
    assert ask(server, "/completion", {"prompt": item["input_ids"]})["timings"]["prompt_n"] == 50


def test_prompts_with_a_shared_prefix_are_exactly_as_long_as_asked(server: Server, found: tokenizer.Tokenizer):
    sizes = {"prefix_tokens": 200, "prefixes": 2, "input_tokens": 33}
    asked = Workload(kind="shared_prefix", output_tokens=2, concurrency=[1], **sizes)
    for item in workload.build(asked, "live", 3, tokenizer=found).items:
        answer = ask(server, "/v1/completions", {"prompt": item["input_ids"]})
        assert answer["usage"]["prompt_tokens"] == 233


def test_under_the_chat_api_the_text_is_exact_and_the_template_comes_on_top(server: Server, found: tokenizer.Tokenizer):
    def counted(content: str) -> int:
        body = {"messages": [{"role": "user", "content": content}]}
        return ask(server, "/v1/chat/completions", body)["usage"]["prompt_tokens"]

    asked = Workload(kind="random", output_tokens=2, concurrency=[1], input_tokens=100, api="chat")
    item = workload.build(asked, "live", 1, tokenizer=found).items[0]
    assert counted(item["messages"][0]["content"]) - counted("") == 100


def test_chat_prompts_that_are_said_to_fit_do_fit(server: Server, found: tokenizer.Tokenizer):
    asked = Workload(kind="chat", output_tokens=2, concurrency=[1])
    longest = []
    for counts in (found, None):
        prompts = workload.build(asked, "live", 240, tokenizer=counts, max_prompt_tokens=FLAGS["n_ctx"])
        contents = [item["messages"][0]["content"] for item in prompts.items]
        longest.append(max(contents, key=lambda content: len(found.tokens(content))))
        assert prompts.left_out > 0
    assert len(found.tokens(longest[0])) >= len(found.tokens(longest[1]))
    body = {"messages": [{"role": "user", "content": longest[0]}]}
    assert ask(server, "/v1/chat/completions", body)["usage"]["prompt_tokens"] <= FLAGS["n_ctx"]


def test_words_without_a_tokenizer_are_within_two_percent(found: tokenizer.Tokenizer):
    asked = Workload(kind="random", output_tokens=2, concurrency=[1], input_tokens=500)
    for item in workload.build(asked, "live", 5).items:
        assert abs(len(found.tokens(item["text"])) - 500) <= 10
