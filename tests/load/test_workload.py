"""The list of prompts: the same for the same salt, varied, full of text to quote, and what goes with it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.errors import InputError
from lab.load import kinds, workload
from lab.load.kinds.base import estimated_tokens
from lab.load.kinds.chat import PROMPTS, load_prompts
from lab.workloads import Workload
from tests.load.words_tokenizer import WordsTokenizer

CATEGORIES = {"repeat", "edit", "chat", "code", "maths", "retrieval"}
QUOTING = {"repeat", "edit", "code", "retrieval"}


def chat(**values: object) -> Workload:
    return Workload(**{"kind": "chat", "output_tokens": 32, "concurrency": [4], **values})


def contents(prompts: workload.Prompts) -> list[str]:
    return [item["messages"][0]["content"] for item in prompts.items]


def texts(prompts: workload.Prompts) -> list[str]:
    """What the user says, without the tag."""
    return [content.partition("] ")[2] for content in contents(prompts)]


def categories(prompts: workload.Prompts) -> list[str]:
    of = {text: category for category, text in load_prompts(PROMPTS)}
    return [of[text] for text in texts(prompts)]


def test_the_project_brings_240_different_prompts_of_every_category():
    prompts = load_prompts(PROMPTS)
    assert len({text for _, text in prompts}) == len(prompts) == 240
    counts = Counter(category for category, _ in prompts)
    assert set(counts) == CATEGORIES
    assert min(counts.values()) >= 19
    assert sum(counts[category] for category in QUOTING) >= len(prompts) / 2


def test_quoted_stretches_are_longer_than_twelve_words():
    for category, text in load_prompts(PROMPTS):
        if category == "edit":
            assert len(text.split("\n\n", 1)[1].split()) >= 12, text


def test_documents_have_300_to_1100_words_and_a_question_at_the_end():
    documents = [text for category, text in load_prompts(PROMPTS) if category == "retrieval"]
    lengths = [len(text.split()) for text in documents]
    assert len(documents) >= 24
    assert min(lengths) >= 300
    assert sum(length >= 900 for length in lengths) >= 3
    assert max(lengths) <= 1100
    assert all(text.rsplit("\n\n", 1)[1].startswith("Question: ") and text.endswith("?") for text in documents)


@given(st.text(max_size=20), st.integers(0, 600))
@settings(max_examples=30, deadline=None)
def test_same_salt_same_prompts(salt: str, count: int):
    first, second = workload.build(chat(), salt, count), workload.build(chat(), salt, count)
    assert first == second
    assert len(first.items) == count


@given(st.text(max_size=20), st.text(max_size=20), st.integers(1, 300))
@settings(max_examples=30, deadline=None)
def test_another_salt_asks_the_same_in_the_same_order_behind_other_beginnings(one: str, two: str, count: int):
    first, second = workload.build(chat(), one, count), workload.build(chat(), two, count)
    assert texts(first) == texts(second)
    assert (first.digest == second.digest) == (one == two)
    assert bool(set(contents(first)) & set(contents(second))) == (one == two)


def test_a_list_that_is_gone_through_again_has_another_order_and_other_tags():
    prompts = workload.build(chat(), "a", 480)
    assert len(set(contents(prompts))) == 480
    first, second = texts(prompts)[:240], texts(prompts)[240:]
    assert sorted(first) == sorted(second)
    assert first != second


def test_a_shorter_list_is_the_beginning_of_the_longer():
    assert workload.build(chat(), "a", 10).items == workload.build(chat(), "a", 500).items[:10]


@pytest.mark.parametrize("limit", [None, 480])
def test_every_stretch_of_the_order_holds_every_category_in_proportion(limit: int | None):
    prompts = workload.build(chat(), "a", 960, max_prompt_tokens=limit)
    order = categories(prompts)
    shares = {category: count / len(order) for category, count in Counter(order).items()}
    for start in range(0, 960, 48):
        counts = Counter(order[start : start + 48])
        for category, share in shares.items():
            assert abs(counts[category] - 48 * share) <= 3


def test_the_digest_is_over_what_is_sent_in_its_order():
    chat_api, plain = workload.build(chat(), "a", 20), workload.build(chat(api="completions"), "a", 20)
    assert chat_api.digest != plain.digest
    assert [item["text"] for item in plain.items] == contents(chat_api)
    assert (chat_api.templated, plain.templated) == (True, False)
    assert workload.build(chat(), "a", 19).digest != chat_api.digest


def test_prompts_that_do_not_fit_are_left_out_and_counted():
    everything = workload.build(chat(), "a", 240)
    short = workload.build(chat(), "a", 240, max_prompt_tokens=480)
    assert (everything.left_out, short.left_out) == (0, 28)
    assert "retrieval" not in categories(short)
    room = workload.build(chat(), "a", 240, max_prompt_tokens=992)
    assert 0 < room.left_out < 28
    assert all(estimated_tokens(text) < 992 for text in texts(room))


def test_a_tokenizer_decides_in_place_of_the_estimate_and_is_asked_only_about_long_prompts():
    tokenizer = WordsTokenizer()
    prompts = workload.build(chat(), "a", 240, max_prompt_tokens=1500, tokenizer=tokenizer)
    assert 0 < tokenizer.calls < 60
    assert all(len(tokenizer.tokens(text)) < 1500 for text in texts(prompts))
    assert prompts.left_out == 240 - len(set(texts(prompts)))


def test_a_context_that_holds_no_prompt_is_refused():
    with pytest.raises(InputError, match="no prompt fits into 80 tokens"):
        workload.build(chat(), "a", 1, max_prompt_tokens=80)


def test_thinking_is_told_to_the_template_only_when_asked():
    assert workload.build(chat(), "a", 1).extras() == {}
    for word, value in (("on", True), ("off", False)):
        prompts = workload.build(chat(thinking=word), "a", 1)
        assert prompts.extras() == {"chat_template_kwargs": {"enable_thinking": value}}
        assert prompts.record()["thinking"] == word


def test_sampling_is_greedy_and_stops_where_the_model_stops():
    assert workload.build(chat(), "a", 1).sampling() == {"temperature": 0, "seed": 1}
    warm = workload.build(chat(temperature=0.7, ignore_eos=True), "a", 1)
    assert warm.sampling() == {"temperature": 0.7, "seed": 1, "ignore_eos": True}


def test_the_record_tells_everything_but_the_prompts():
    record = workload.build(chat(arrivals="poisson", rate_rps=2.5), "a", 3).record()
    assert record == {
        "salt": "a",
        "digest": record["digest"],
        "count": 3,
        "kind": "chat",
        "api": "chat",
        "templated": True,
        "reuse": False,
        "synthetic": False,
        "input_tokens": None,
        "input_tokens_exact": None,
        "length_source": None,
        "left_out": 0,
        "ignore_eos": False,
        "thinking": "default",
        "sampling": {"temperature": 0, "seed": 1},
        "arrivals": "poisson",
        "rate_rps": 2.5,
        "slo": None,
    }


def test_kinds_are_found_by_registration_and_unknown_ones_refused():
    assert kinds.names() == ["chat", "jsonl", "random", "shared_prefix", "trace"]
    with pytest.raises(InputError, match="unknown; did you mean 'chat'"):
        kinds.get("chatt")
    with pytest.raises(ValueError, match="two kinds of workload are called chat"):
        kinds.base.register(type(kinds.get("chat")))


@pytest.mark.parametrize("line", ["not json", '{"category": "chat"}', "[]"])
def test_a_damaged_list_is_named_with_its_line(tmp_path: Path, line: str):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"category": "chat", "text": "hello"}\n' + line + "\n")
    with pytest.raises(InputError, match=r"prompts.jsonl:2"):
        load_prompts(path)


def test_an_absent_or_empty_list_is_named(tmp_path: Path):
    with pytest.raises(InputError, match=r"none.jsonl"):
        load_prompts(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(InputError, match=r"empty.jsonl: holds no prompts"):
        load_prompts(tmp_path / "empty.jsonl")
