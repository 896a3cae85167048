"""Prompts and traces that users bring: every usual form is read, every damage is named with file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.errors import InputError
from lab.load import workload
from lab.workloads import Workload
from tests.load.words_tokenizer import WordsTokenizer

SHAREGPT = {
    "id": "x",
    "conversations": [
        {"from": "gpt", "value": "Welcome."},
        {"from": "human", "value": "Hello?"},
        {"from": "gpt", "value": "Hello."},
        {"from": "human", "value": "Why?"},
        {"from": "gpt", "value": "Because."},
    ],
}


def write(folder: Path, *lines: Any, name: str = "own.jsonl") -> Path:
    """A file of the given lines; what is no text is written as JSON."""
    path = folder / name
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def jsonl(**values: Any) -> Workload:
    return Workload(**{"kind": "jsonl", "path": "own.jsonl", "output_tokens": 32, "concurrency": [4], **values})


def trace(**values: Any) -> Workload:
    return Workload(**{"kind": "trace", "path": "own.jsonl", "output_tokens": 32, "concurrency": [4], **values})


def said(item: dict[str, Any]) -> str:
    """The first text of an item, without the tag."""
    text = item["text"] if "text" in item else item["messages"][0]["content"]
    return text.partition("] ")[2]


def problem(workload_: Workload, folder: Path) -> str:
    """What checking the files says, without the folder; building says the same."""
    with pytest.raises(InputError) as caught:
        workload_.check(folder, 0.0)
    with pytest.raises(InputError) as again:
        workload.build(workload_, "a", 5, folder=folder)
    assert str(caught.value) == str(again.value)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{folder}/")


def test_messages_go_to_the_chat_api_behind_a_tag(tmp_path: Path):
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    write(tmp_path, {"messages": turns})
    prompts = workload.build(jsonl(), "a", 3, folder=tmp_path)
    assert (prompts.api, prompts.templated, prompts.synthetic, prompts.reuse) == ("chat", True, False, False)
    assert [said(item) for item in prompts.items] == ["Be brief."] * 3
    assert len({item["messages"][0]["content"] for item in prompts.items}) == 3
    assert all(item["messages"][1] == turns[1] for item in prompts.items)


def test_a_message_of_parts_gets_its_tag_as_a_part(tmp_path: Path):
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    write(tmp_path, {"messages": [{"role": "user", "content": parts}]})
    content = workload.build(jsonl(), "a", 1, folder=tmp_path).items[0]["messages"][0]["content"]
    assert content[0]["type"] == "text"
    assert content[0]["text"].startswith("[")
    assert content[1:] == parts


@pytest.mark.parametrize("field", ["prompt", "text"])
def test_texts_go_to_completions_or_become_what_a_user_says(tmp_path: Path, field: str):
    write(tmp_path, {field: "Once upon a time"})
    plain = workload.build(jsonl(), "a", 1, folder=tmp_path)
    assert (plain.api, plain.templated, said(plain.items[0])) == ("completions", False, "Once upon a time")
    asked = workload.build(jsonl(api="chat"), "a", 1, folder=tmp_path)
    assert asked.items[0]["messages"][0]["role"] == "user"
    assert said(asked.items[0]) == "Once upon a time"


@pytest.mark.parametrize("as_array", [False, True])
def test_sharegpt_is_sent_up_to_the_last_human_turn(tmp_path: Path, as_array: bool):
    silent = {"conversations": [{"from": "gpt", "value": "Hello."}]}
    lines = [json.dumps([SHAREGPT, silent])] if as_array else [SHAREGPT, silent]
    write(tmp_path, *lines)
    prompts = workload.build(jsonl(), "a", 1, folder=tmp_path)
    assert [message["role"] for message in prompts.items[0]["messages"]] == ["user", "assistant", "user"]
    assert prompts.items[0]["messages"][-1]["content"] == "Why?"
    assert prompts.left_out == 1


@pytest.mark.parametrize("field", ["output_tokens", "max_tokens", "output_length"])
def test_a_line_may_bring_its_own_cap(tmp_path: Path, field: str):
    write(tmp_path, {"prompt": "a", field: 7}, {"prompt": "b"})
    items = workload.build(jsonl(), "a", 2, folder=tmp_path).items
    assert {said(item): item.get("max_tokens") for item in items} == {"a": 7, "b": None}
    assert "own.jsonl:2: gives no output_tokens" in problem(jsonl(output_tokens=None), tmp_path)


def test_long_lines_are_left_out_by_estimate_and_by_tokenizer(tmp_path: Path):
    write(tmp_path, {"prompt": "short"}, {"prompt": "word " * 70})
    for tokenizer in (None, WordsTokenizer()):
        prompts = workload.build(jsonl(), "a", 4, folder=tmp_path, max_prompt_tokens=60, tokenizer=tokenizer)
        assert ({said(item) for item in prompts.items}, prompts.left_out) == ({"short"}, 1)
    fits = workload.build(jsonl(), "a", 4, folder=tmp_path, max_prompt_tokens=90, tokenizer=WordsTokenizer())
    assert fits.left_out == 0
    with pytest.raises(InputError, match="no prompt fits into 3 tokens"):
        workload.build(jsonl(), "a", 4, folder=tmp_path, max_prompt_tokens=3)


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20), min_size=1, max_size=8),
    st.text(max_size=5),
)
@settings(max_examples=30, deadline=None)
def test_every_line_is_sent_once_a_round_and_nothing_twice(tmp_path_factory: Any, lines: list[str], salt: str):
    folder = tmp_path_factory.mktemp("lines")
    write(folder, *({"prompt": line} for line in lines))
    prompts = workload.build(jsonl(), salt, 3 * len(lines), folder=folder)
    assert sorted(map(said, prompts.items)) == sorted(3 * lines)
    assert len({item["text"] for item in prompts.items}) == len(prompts.items)
    assert prompts == workload.build(jsonl(), salt, 3 * len(lines), folder=folder)


BROKEN: dict[str, tuple[str, str]] = {
    "no JSON": ("{", "2: is not valid JSON"),
    "no object": ("[1]", "2: is no JSON object, but [1]"),
    "no prompt": ('{"question": "x"}', "2: holds no prompt; give one of messages, conversations, prompt, text"),
    "an empty prompt": ('{"prompt": ""}', "2: prompt: must be a text, got ''"),
    "no messages": ('{"messages": []}', "2: messages: must be a list of messages, got []"),
    "no role": (
        '{"messages": [{"content": "x"}]}',
        "2: messages: a message is an object with role and content, got {'content': 'x'}",
    ),
    "no content": ('{"messages": [{"role": "user"}]}', "2: messages: a message of 'user' has no content"),
    "an unknown speaker": (
        '{"conversations": [{"from": "cat", "value": "x"}]}',
        "2: conversations: a turn has from (one of human, user, gpt, assistant, system) and value, got "
        "{'from': 'cat', 'value': 'x'}",
    ),
    "no turns": ('{"conversations": "x"}', "2: conversations: must be a list of turns, got 'x'"),
    "half a token": (
        '{"prompt": "x", "output_tokens": 1.5}',
        "2: output_tokens: must be a whole number from 1, got 1.5",
    ),
    "a true cap": ('{"prompt": "x", "max_tokens": true}', "2: max_tokens: must be a number from 0, got True"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_damaged_line_is_named(tmp_path: Path, case: str):
    line, expected = BROKEN[case]
    write(tmp_path, {"prompt": "good"}, line)
    assert problem(jsonl(), tmp_path).startswith(f"own.jsonl:{expected}")


def test_a_damaged_entry_of_an_array_is_named(tmp_path: Path):
    write(tmp_path, '[{"prompt": "good"}, 5]')
    assert problem(jsonl(), tmp_path) == "own.jsonl:entry 2: is no JSON object, but 5"


@pytest.mark.parametrize("content", ["", "\n \n", "[]"])
def test_an_empty_file_is_refused(tmp_path: Path, content: str):
    (tmp_path / "own.jsonl").write_text(content)
    assert problem(jsonl(), tmp_path) == "own.jsonl: holds no prompts"


def test_files_that_cannot_be_read_are_refused(tmp_path: Path):
    assert problem(jsonl(), tmp_path) == "own.jsonl: prompts cannot be read (No such file or directory)"
    (tmp_path / "own.jsonl").mkdir()
    assert problem(jsonl(), tmp_path) == "own.jsonl: prompts cannot be read (Is a directory)"


def test_text_that_is_not_utf8_is_refused_with_its_line(tmp_path: Path):
    (tmp_path / "own.jsonl").write_bytes(b'{"prompt": "good"}\n{"prompt": "caf\xe9"}\n')
    assert problem(jsonl(), tmp_path).startswith("own.jsonl:2: is not UTF-8 (byte 15)")


def test_a_byte_order_mark_and_blank_lines_are_skipped(tmp_path: Path):
    (tmp_path / "own.jsonl").write_bytes(b'\xef\xbb\xbf\n{"prompt": "x"}\r\n\n')
    assert said(workload.build(jsonl(), "a", 1, folder=tmp_path).items[0]) == "x"


def test_a_file_in_which_nobody_asks_is_refused(tmp_path: Path):
    write(tmp_path, {"conversations": []})
    assert problem(jsonl(), tmp_path) == "own.jsonl: in no conversation does anybody ask"


def test_messages_need_the_chat_api(tmp_path: Path):
    write(tmp_path, {"messages": [{"role": "user", "content": "x"}]})
    assert problem(jsonl(api="completions"), tmp_path).startswith(
        "own.jsonl:1: holds messages, which api 'completions'"
    )


def test_a_changed_file_is_read_again(tmp_path: Path):
    write(tmp_path, {"prompt": "one"})
    assert said(workload.build(jsonl(), "a", 1, folder=tmp_path).items[0]) == "one"
    write(tmp_path, {"prompt": "other"})
    assert said(workload.build(jsonl(), "a", 1, folder=tmp_path).items[0]) == "other"


MOONCAKE = (
    {"timestamp": 1000, "input_length": 1500, "output_length": 52, "hash_ids": [46, 47, 48]},
    {"timestamp": 1000, "input_length": 1100, "output_length": 3, "hash_ids": [46, 47, 60]},
    {"timestamp": 4500, "input_length": 1500, "output_length": 9, "hash_ids": [70, 47, 48]},
)


def test_a_trace_of_lengths_becomes_words_that_share_blocks_by_hash(tmp_path: Path):
    write(tmp_path, *MOONCAKE)
    prompts = workload.build(trace(output_tokens=None), "a", 9, folder=tmp_path, tokenizer=WordsTokenizer())
    first, second, third = (item["input_ids"] for item in prompts.items)
    assert [len(ids) for ids in (first, second, third)] == [1500, 1100, 1500]
    assert first[:1024] == second[:1024]
    assert first[1024:1100] != second[1024:]
    assert first[:16] != third[:16]
    assert first[512:] == third[512:]
    assert [item["at_s"] for item in prompts.items] == [0, 0, 3.5]
    assert [item["max_tokens"] for item in prompts.items] == [52, 3, 9]
    assert (prompts.arrivals, prompts.api, prompts.synthetic, prompts.reuse) == ("trace", "completions", True, True)
    assert (prompts.input_tokens, prompts.input_tokens_exact, prompts.ignore_eos) == (None, True, True)


def test_passes_of_a_trace_share_no_block(tmp_path: Path):
    write(tmp_path, *MOONCAKE)
    one, two = (workload.build(trace(), salt, 3, folder=tmp_path, tokenizer=WordsTokenizer()) for salt in "ab")
    assert one.items[0]["input_ids"][:16] != two.items[0]["input_ids"][:16]


def test_a_trace_of_prompts_keeps_its_times_and_its_order(tmp_path: Path):
    write(tmp_path, {"at_s": 2, "prompt": "a", "output_tokens": 5}, {"at_s": 6.5, "prompt": "b"})
    prompts = workload.build(trace(speed=2), "a", 99, folder=tmp_path)
    assert [(said(item), item["at_s"], item.get("max_tokens")) for item in prompts.items] == [
        ("a", 0, 5),
        ("b", 2.25, None),
    ]
    assert (prompts.synthetic, prompts.ignore_eos, prompts.api) == (False, False, "completions")


def test_a_trace_without_a_tokenizer_says_that_lengths_are_words(tmp_path: Path):
    write(tmp_path, *MOONCAKE)
    prompts = workload.build(trace(api="chat"), "a", 1, folder=tmp_path)
    assert len(prompts.items[0]["messages"][0]["content"].split()) == 1500
    assert prompts.input_tokens_exact is False


def test_a_trace_may_be_a_table(tmp_path: Path):
    write(tmp_path, "timestamp,input_length,output_length", "0,10,4", "250,20,5", name="own.csv")
    prompts = workload.build(trace(path="own.csv"), "a", 9, folder=tmp_path)
    assert [len(item["text"].split()) for item in prompts.items] == [10, 20]
    assert [(item["at_s"], item["max_tokens"]) for item in prompts.items] == [(0, 4), (0.25, 5)]


def test_requests_that_do_not_fit_are_left_out_of_a_trace(tmp_path: Path):
    write(tmp_path, *MOONCAKE, {"at_s": 9, "prompt": "word " * 3000})
    prompts = workload.build(trace(), "a", 9, folder=tmp_path, max_prompt_tokens=1200)
    assert ([item["at_s"] for item in prompts.items], prompts.left_out) == ([0], 3)
    with pytest.raises(InputError, match="no request fits into 12 tokens"):
        workload.build(trace(), "a", 9, folder=tmp_path, max_prompt_tokens=12)


BROKEN_TRACES: dict[str, tuple[Any, str]] = {
    "a time that falls": (
        {"at_s": 1, "prompt": "x"},
        "2: is due at 1 s, before the line above it (5 s); sort the file",
    ),
    "no time": ({"prompt": "x"}, "2: has no time; give timestamp in milliseconds or at_s in seconds"),
    "a time in words": ({"at_s": "soon", "prompt": "x"}, "2: at_s: must be a number from 0, got 'soon'"),
    "a time before the beginning": ({"at_s": -1, "prompt": "x"}, "2: at_s: must be a number from 0, got -1"),
    "nothing asked": ({"at_s": 6}, "2: says not what to ask; give messages, prompt, text or input_length"),
    "no tokens": ({"at_s": 6, "input_length": 0}, "2: input_length: must be a whole number from 1, got 0"),
    "hashes in words": ({"at_s": 6, "input_length": 9, "hash_ids": "7"}, "2: hash_ids: must be a list, got '7'"),
}


@pytest.mark.parametrize("case", BROKEN_TRACES)
def test_a_damaged_line_of_a_trace_is_named(tmp_path: Path, case: str):
    line, expected = BROKEN_TRACES[case]
    write(tmp_path, {"at_s": 5, "prompt": "x"}, line)
    assert problem(trace(), tmp_path) == f"own.jsonl:{expected}"


def test_a_row_of_a_table_with_too_many_fields_is_named(tmp_path: Path):
    write(tmp_path, "at_s,prompt", "0,a", "1,b,c", name="own.csv")
    assert problem(trace(path="own.csv"), tmp_path) == "own.csv:3: has more fields than the header names"
