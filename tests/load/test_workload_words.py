"""Synthetic prompts: exactly as long as asked, shared where declared, and new for every salt."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.errors import InputError, LabError
from lab.load import workload
from lab.load.kinds._words import fitted, load_words
from lab.workloads import Workload
from tests.load.words_tokenizer import WordsTokenizer


def random_words(**values: object) -> Workload:
    return Workload(**{"kind": "random", "output_tokens": 32, "concurrency": [4], "input_tokens": 64, **values})


def shared(**values: object) -> Workload:
    sizes = {"input_tokens": 16, "prefix_tokens": 100, "prefixes": 3}
    return Workload(**{"kind": "shared_prefix", "output_tokens": 32, "concurrency": [4], **sizes, **values})


@given(st.text(max_size=10), st.integers(1, 700), st.sampled_from(["completions", "generate", "llamacpp"]))
@settings(max_examples=30, deadline=None)
def test_ids_are_exactly_as_many_as_asked(salt: str, tokens: int, api: str):
    prompts = workload.build(random_words(input_tokens=tokens, api=api), salt, 20, tokenizer=WordsTokenizer())
    assert {len(item["input_ids"]) for item in prompts.items} == {tokens}
    assert (prompts.input_tokens, prompts.input_tokens_exact, prompts.api) == (tokens, True, api)
    assert prompts == workload.build(random_words(input_tokens=tokens, api=api), salt, 20, tokenizer=WordsTokenizer())


def test_the_tokenizer_is_asked_once_for_ids_and_their_text_is_words():
    tokenizer = WordsTokenizer()
    prompts = workload.build(random_words(), "a", 1024, tokenizer=tokenizer)
    assert tokenizer.calls == 1
    letters = set("".join(load_words())) | {" "}
    assert all(set(tokenizer.text(item["input_ids"])) <= letters for item in prompts.items)


def test_no_two_synthetic_prompts_begin_alike_whatever_the_salt():
    beginnings = [
        tuple(item["input_ids"][:16])
        for salt in ("a", "b")
        for item in workload.build(random_words(), salt, 1024, tokenizer=WordsTokenizer()).items
    ]
    assert len(set(beginnings)) == 2048


@given(st.text(max_size=10), st.integers(1, 300))
@settings(max_examples=30, deadline=None)
def test_text_for_the_chat_api_is_cut_until_the_tokenizer_agrees(salt: str, tokens: int):
    tokenizer = WordsTokenizer()
    prompts = workload.build(random_words(input_tokens=tokens, api="chat"), salt, 5, tokenizer=tokenizer)
    assert {len(tokenizer.tokens(item["messages"][0]["content"])) for item in prompts.items} == {tokens}
    assert (prompts.templated, prompts.input_tokens_exact) == (True, False)
    assert "template adds its own" in (prompts.length_source or "")


def test_without_a_tokenizer_lengths_are_words_and_said_to_be_inexact():
    prompts = workload.build(random_words(input_tokens=50), "a", 20)
    assert {len(item["text"].split()) for item in prompts.items} == {50}
    assert prompts.input_tokens_exact is False
    assert "no tokenizer" in prompts.record()["length_source"]


def test_synthetic_prompts_run_to_their_cap_unless_told_otherwise():
    assert workload.build(random_words(), "a", 1).sampling()["ignore_eos"] is True
    assert "ignore_eos" not in workload.build(random_words(ignore_eos=False), "a", 1).sampling()
    assert workload.build(random_words(), "a", 1).synthetic is True


def test_a_tokenizer_that_never_agrees_is_an_error_and_no_endless_loop():
    class Odd(WordsTokenizer):
        def tokens(self, text: str) -> list[int]:
            return [0] * (2 * len(text.split()))

    with pytest.raises(LabError, match="no text of 5 tokens"):
        fitted(["one"] * 5, 5, Odd(), random.Random(0))


@pytest.mark.parametrize("tokenizer", [WordsTokenizer(), None])
def test_groups_share_their_prefix_and_questions_differ(tokenizer: WordsTokenizer | None):
    prompts = workload.build(shared(), "a", 30, tokenizer=tokenizer)
    lists = [item.get("input_ids") or item["text"].split() for item in prompts.items]
    assert {len(ids) for ids in lists} == {116} == {prompts.input_tokens}
    groups: dict[tuple, list[tuple]] = {}
    for ids in lists:
        groups.setdefault(tuple(ids[:100]), []).append(tuple(ids[100:]))
    assert sorted(len(questions) for questions in groups.values()) == [10, 10, 10]
    assert len({question for questions in groups.values() for question in questions}) == 30
    assert (prompts.reuse, prompts.synthetic, prompts.input_tokens_exact) == (True, True, tokenizer is not None)


def test_every_round_asks_behind_each_prefix_once():
    lists = [item["text"].split()[:100] for item in workload.build(shared(prefixes=5), "a", 50).items]
    for start in range(0, 50, 5):
        assert len({tuple(words) for words in lists[start : start + 5]}) == 5


def test_passes_share_no_prefix():
    one, two = (workload.build(shared(), salt, 30, tokenizer=WordsTokenizer()) for salt in ("a", "b"))
    first = {tuple(item["input_ids"][:16]) for item in one.items}
    assert not first & {tuple(item["input_ids"][:16]) for item in two.items}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (random_words(input_tokens=600), "input_tokens: 600 make prompts of 600 tokens, the server takes 500"),
        (shared(prefix_tokens=490), "prefix_tokens: 490 and input_tokens: 16 make prompts of 506 tokens"),
    ],
)
def test_a_length_beyond_the_context_is_refused(asked: Workload, words: str):
    with pytest.raises(InputError, match=words):
        workload.build(asked, "a", 10, max_prompt_tokens=500)


def test_the_words_are_many_and_short():
    assert len(load_words()) == len(set(load_words())) >= 400
    assert max(map(len, load_words())) <= 12
