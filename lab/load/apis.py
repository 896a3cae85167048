"""The APIs that can be measured: how each is asked, and where its stream says what.

Without one place for it a native API is read with the rules of another: a cumulative text is counted again in
every chunk, and a cap that the server does not know by that name is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lab.errors import InputError

Body = dict[str, Any]


@dataclass(frozen=True)
class Api:
    """One streaming API of a server.

    path: below the server's address. body(item, model, max_tokens, sampling, extras): the request for one item of
    a workload; raises InputError for a kind of item that this API does not take. count_paths: where a chunk may
    carry the running count of generated tokens, tried in this order after the engine's own. text_field: the
    chunk's key that holds text, None when text lies in `choices`. cumulative: each chunk repeats the whole text.
    """

    name: str
    path: str
    body: Callable[[Mapping[str, Any], str, int, Mapping[str, Any], Mapping[str, Any]], Body]
    count_paths: tuple[tuple[str, ...], ...]
    text_field: str | None = None
    cumulative: bool = False


def get(name: str) -> Api:
    """The API of that name; raises InputError naming those there are."""
    if name not in APIS:
        raise InputError(f"api: '{name}' is not one of {', '.join(APIS)}")
    return APIS[name]


def _chat(item: Mapping[str, Any], model: str, max_tokens: int, sampling: Mapping, extras: Mapping) -> Body:
    if "messages" in item:
        messages = item["messages"]
    elif "text" in item:
        messages = [{"role": "user", "content": item["text"]}]
    else:
        raise _refused("chat", item, "use api: completions, generate or llamacpp for token ids")
    return _openai({"model": model, "messages": messages, "max_tokens": max_tokens}, sampling, extras)


def _completions(item: Mapping[str, Any], model: str, max_tokens: int, sampling: Mapping, extras: Mapping) -> Body:
    prompt = _plain("completions", item)
    return _openai({"model": model, "prompt": prompt, "max_tokens": max_tokens}, sampling, extras)


def _openai(body: Body, sampling: Mapping[str, Any], extras: Mapping[str, Any]) -> Body:
    options = {"include_usage": True} | dict(extras.get("stream_options") or {})
    return {**body, **sampling, "stream": True, **extras, "stream_options": options}


_GENERATE_SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty",
    "min_new_tokens", "stop", "stop_token_ids", "ignore_eos", "skip_special_tokens", "spaces_between_special_tokens",
    "no_stop_trim", "json_schema", "regex", "ebnf", "structural_tag", "logit_bias", "sampling_seed", "custom_params",
)  # fmt: skip


def _generate(item: Mapping[str, Any], model: str, max_tokens: int, sampling: Mapping, extras: Mapping) -> Body:
    """SGLang's /generate: sampling fields lie in `sampling_params`, and a seed is called `sampling_seed` there.

    A seed is left out at temperature 0, where it changes nothing and older versions refuse it.
    """
    asked = {**sampling, **extras}
    seed = asked.pop("seed", None)
    if seed is not None and asked.get("temperature"):
        asked["sampling_seed"] = seed
    params = {name: asked.pop(name) for name in list(asked) if name in _GENERATE_SAMPLING}
    params |= {"max_new_tokens": max_tokens} | dict(asked.pop("sampling_params", None) or {})
    prompt = _plain("generate", item)
    kind = "text" if isinstance(prompt, str) else "input_ids"
    return {kind: prompt, **asked, "sampling_params": params, "stream": True}


def _llamacpp(item: Mapping[str, Any], model: str, max_tokens: int, sampling: Mapping, extras: Mapping) -> Body:
    return {"prompt": _plain("llamacpp", item), "n_predict": max_tokens, **sampling, "stream": True, **extras}


def _plain(api: str, item: Mapping[str, Any]) -> str | list[int]:
    """The prompt of an item without a chat template."""
    if "text" in item:
        return item["text"]
    if "input_ids" in item:
        return item["input_ids"]
    raise _refused(api, item, "use api: chat for messages")


def _refused(api: str, item: Mapping[str, Any], advice: str) -> InputError:
    kinds = [name for name in ("messages", "text", "input_ids") if name in item]
    return InputError(f"api: '{api}' takes no prompt given as {' or '.join(kinds) or 'nothing'}; {advice}")


_OPENAI_COUNTS = (("usage", "completion_tokens"), ("timings", "predicted_n"))

APIS = {
    api.name: api
    for api in (
        Api("chat", "/v1/chat/completions", _chat, _OPENAI_COUNTS),
        Api("completions", "/v1/completions", _completions, _OPENAI_COUNTS),
        Api("generate", "/generate", _generate, (("meta_info", "completion_tokens"),), "text", cumulative=True),
        Api("llamacpp", "/completion", _llamacpp, (("tokens_predicted",), ("timings", "predicted_n")), "content"),
    )
}
