"""Prompts: the same for the same salt, varied, and full of text to quote."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.errors import InputError
from lab.load import workload

CHAT = SimpleNamespace(kind="chat")


def texts(prompts: workload.Prompts) -> list[str]:
    """What the user says, without the tag."""
    return [messages[0]["content"].partition("] ")[2] for messages in prompts.messages]


def test_at_least_half_of_the_prompts_quote_a_text():
    categories = Counter(category for category, _ in workload.load_prompts(workload.DATA["chat"]))
    assert categories.total() >= 60
    assert categories["repeat"] + categories["edit"] >= categories.total() / 2
    assert set(categories) == {"repeat", "edit", "chat", "code", "maths"}


def test_quoted_stretches_are_longer_than_twelve_words():
    for category, text in workload.load_prompts(workload.DATA["chat"]):
        if category == "edit":
            assert len(text.split("\n\n", 1)[1].split()) >= 12, text


def test_no_prompt_twice():
    prompts = [text for _, text in workload.load_prompts(workload.DATA["chat"])]
    assert len(set(prompts)) == len(prompts)


@given(st.text(max_size=20), st.integers(0, 200))
@settings(max_examples=40, deadline=None)
def test_same_salt_same_prompts(salt: str, count: int):
    first, second = workload.build(CHAT, salt, count), workload.build(CHAT, salt, count)
    assert first == second
    assert len(first.messages) == count


def test_another_salt_asks_the_same_in_the_same_order_behind_other_beginnings():
    one, two = workload.build(CHAT, "a", 75), workload.build(CHAT, "b", 75)
    assert one.digest != two.digest
    assert texts(one) == texts(two)
    assert one.messages[0][0]["content"][:6] != two.messages[0][0]["content"][:6]


def test_no_two_messages_of_a_list_are_equal_even_when_prompts_repeat():
    contents = [messages[0]["content"] for messages in workload.build(CHAT, "a", 300).messages]
    assert len(set(contents)) == 300


def test_shorter_list_is_the_beginning_of_the_longer():
    assert workload.build(CHAT, "a", 10).messages == workload.build(CHAT, "a", 100).messages[:10]


@pytest.mark.parametrize("salt", ["a", "b", "c"])
def test_every_stretch_of_the_order_holds_its_share_of_quotes(salt: str):
    quoting = {
        text for category, text in workload.load_prompts(workload.DATA["chat"]) if category in ("repeat", "edit")
    }
    order = texts(workload.build(CHAT, salt, 70))
    for start in range(0, 70, 10):
        assert 3 <= sum(text in quoting for text in order[start : start + 10]) <= 8


def test_unknown_kind_names_the_known_one():
    with pytest.raises(InputError, match="chat"):
        workload.build(SimpleNamespace(kind="chatt"), "a", 1)


@pytest.mark.parametrize("line", ["not json", '{"category": "chat"}', "[]"])
def test_damaged_file_is_named_with_its_line(tmp_path: Path, line: str):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"category": "chat", "text": "hello"}\n' + line + "\n")
    with pytest.raises(InputError, match=r"prompts.jsonl:2"):
        workload.build(CHAT, "a", 1, path)


def test_absent_file_is_named(tmp_path: Path):
    with pytest.raises(InputError, match=r"none.jsonl"):
        workload.build(CHAT, "a", 1, tmp_path / "none.jsonl")
