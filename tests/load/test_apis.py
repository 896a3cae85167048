"""Request bodies of the four APIs."""

from __future__ import annotations

import pytest

from lab.errors import InputError
from lab.load import apis

MESSAGES = [{"role": "user", "content": "hello"}]
SAMPLING = {"temperature": 0, "seed": 1}


def body(api: str, item: dict, sampling: dict = SAMPLING, **extras: object) -> dict:
    """The body for one item, 8 tokens."""
    return apis.get(api).body(item, "m", 8, sampling, extras)


@pytest.mark.parametrize("item", [{"messages": MESSAGES}, {"text": "hello"}])
def test_chat(item: dict):
    assert body("chat", item, cache_prompt=False) == {
        "model": "m", "messages": MESSAGES, "max_tokens": 8, "temperature": 0, "seed": 1, "stream": True,
        "stream_options": {"include_usage": True}, "cache_prompt": False,
    }  # fmt: skip


def test_chat_template_options_pass_through():
    thinking = {"enable_thinking": False}
    assert body("chat", {"text": "a"}, chat_template_kwargs=thinking)["chat_template_kwargs"] == thinking


def test_stream_options_of_the_engine_join_ours():
    options = {"continuous_usage_stats": True}
    asked = body("completions", {"text": "a"}, stream_options=options)["stream_options"]
    assert asked == {"include_usage": True, "continuous_usage_stats": True}


@pytest.mark.parametrize("prompt", [{"text": "a b"}, {"input_ids": [1, 2]}])
def test_completions_take_text_or_ids(prompt: dict):
    asked = body("completions", prompt)
    assert asked["prompt"] == next(iter(prompt.values()))
    assert (asked["max_tokens"], asked["stream"]) == (8, True)


def test_generate_nests_sampling_and_leaves_the_rest_outside():
    asked = body("generate", {"input_ids": [1, 2]}, ignore_eos=True, return_logprob=False)
    assert asked == {
        "input_ids": [1, 2], "stream": True, "return_logprob": False,
        "sampling_params": {"temperature": 0, "ignore_eos": True, "max_new_tokens": 8},
    }  # fmt: skip
    assert body("generate", {"text": "a"})["text"] == "a"


def test_generate_names_a_seed_its_own_way_where_it_matters():
    asked = body("generate", {"text": "a"}, {"temperature": 0.7, "seed": 5})
    assert asked["sampling_params"]["sampling_seed"] == 5
    assert "seed" not in asked


def test_generate_takes_given_sampling_params():
    asked = body("generate", {"text": "a"}, sampling_params={"top_k": 3})
    assert asked["sampling_params"] == {"temperature": 0, "max_new_tokens": 8, "top_k": 3}


def test_native_llamacpp():
    assert body("llamacpp", {"text": "a"}, timings_per_token=True) == {
        "prompt": "a", "n_predict": 8, "temperature": 0, "seed": 1, "stream": True, "timings_per_token": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("api", "item"),
    [("chat", {"input_ids": [1]}), ("generate", {"messages": MESSAGES}), ("llamacpp", {"messages": MESSAGES}),
     ("completions", {})],
)  # fmt: skip
def test_item_that_an_api_cannot_take_is_refused_by_name(api: str, item: dict):
    with pytest.raises(InputError, match=f"'{api}' takes no prompt"):
        body(api, item)


def test_unknown_api_names_those_there_are():
    with pytest.raises(InputError, match="chat, completions, generate, llamacpp"):
        apis.get("chta")


def test_given_extras_and_items_are_left_alone():
    item, extras = {"text": "a"}, {"sampling_params": {"top_k": 3}, "stream_options": {"a": 1}}
    for api in apis.APIS.values():
        api.body(item, "m", 8, SAMPLING, extras)
    assert (item, extras) == ({"text": "a"}, {"sampling_params": {"top_k": 3}, "stream_options": {"a": 1}})
    assert SAMPLING == {"temperature": 0, "seed": 1}
