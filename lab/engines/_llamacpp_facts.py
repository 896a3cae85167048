"""A running llama.cpp server's account of itself: effective state and counters.

Without it a record would repeat what was asked, and a flag that the engine rounded, ignored or overruled
would be judged as if it had taken effect. Every value here was said by the server; a value that it did not
say is None.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

import requests

from lab.engines import _llamacpp_log as log_lines
from lab.engines import _prometheus
from lab.engines.server import Fact, Sample, Server
from lab.hosts import environment_of

CAP_FLAG = "--parallel"
_RUNNING = "llamacpp:requests_processing"
_WAITING = "llamacpp:requests_deferred"
_ACCEPTED_AT = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
_COUNTERS = {
    "prompt_tokens": "llamacpp:prompt_tokens_total",
    "cached_tokens": "llamacpp:prompt_tokens_cached_total",
    "output_tokens": "llamacpp:tokens_predicted_total",
    "decode_steps": "llamacpp:n_decode_total",
    "drafts": "llamacpp:spec_decode_num_drafts_total",
    "draft_tokens": "llamacpp:spec_decode_num_draft_tokens_total",
    "draft_accepted": "llamacpp:spec_decode_num_accepted_tokens_total",
}
_SAMPLED = frozenset({_RUNNING, _WAITING, _ACCEPTED_AT, *_COUNTERS.values()})
_SLOTS = [{"n_ctx": int, "is_processing": bool, "speculative?": bool, "n_prompt_tokens?": int}]
_PROPS = {"total_slots?": int, "default_generation_settings?": {"n_ctx?": int}, "model_path?": str}
_MODELS = {"data": [{"id?": str, "meta?": {"size?": int, "ftype?": str}}]}


class LlamaCppServer(Server):
    """One llama.cpp server; an attached one may have been started without --metrics or --slots."""

    engine = "llamacpp"
    _has_metrics = True
    _has_slots = True

    def look(self) -> tuple[str, ...]:
        """See `Server.look`; raises requests.RequestException without an answer."""
        self._has_metrics = self.control.get("/metrics").status_code == requests.codes.ok
        slots = self.control.shown("/slots", _SLOTS)
        self._has_slots = slots is not None
        missing = [] if self._has_metrics else ["gauges and counters: start llama.cpp with --metrics"]
        if slots is None:
            missing.append("use of the cache: start llama.cpp with --slots")
        elif slots and self._pool_tokens(slots) is None:
            missing.append("use of the cache: only llama.cpp's log says whether its slots share one (--kv-unified)")
        return tuple(missing)

    def sample(self) -> Sample:
        """One scrape of /metrics, and of /slots for the cache.

        `output_tokens` and the draft counters move only when a request ends, `prompt_tokens` and `cached_tokens` when
        its prompt is done; `decode_steps` are the target's, a draft model's own are left out. Every prompt token is
        looked up, so `prefix_queries` are both together. The engine does not count finished requests: they are absent.
        Without --metrics `running` is the number of busy slots and the queue is not shown. Raises
        requests.RequestException when there is no answer or it is no metrics page.
        """
        page = self._page()
        slots = self.control.json("/slots", _SLOTS) if self._has_slots else []
        counters = {name: value for name, metric in _COUNTERS.items() if (value := page.total(metric)) is not None}
        if "prompt_tokens" in counters and "cached_tokens" in counters:
            counters["prefix_queries"] = counters["prompt_tokens"] + counters["cached_tokens"]
            counters["prefix_hits"] = counters["cached_tokens"]
        for position, value in _prometheus.by_label(page.series(_ACCEPTED_AT), "position").items():
            counters[f"draft_accepted_at_{position}"] = value
        running = page.total(_RUNNING)
        if running is None and self._has_slots:
            running = float(sum(slot["is_processing"] for slot in slots))
        return Sample(running, page.total(_WAITING), kv_usage(slots, self._pool_tokens(slots)), counters)

    def describe(self) -> dict[str, Fact]:
        """Effective state from /slots, /props, /v1/models, the log and /proc; see `Server.describe`."""
        props = self.control.json("/props", _PROPS)
        slots = self.control.json("/slots", _SLOTS) if self._has_slots else []
        models = self.control.json("/v1/models", _MODELS)["data"]
        mine = [one for one in models if one.get("id") == self.model] or models
        meta = next(iter(mine), {}).get("meta") or {}
        log = log_lines.lines(self.log_text())
        where = "/slots" if slots else "/props total_slots"
        count = len(slots) if self._has_slots else props.get("total_slots")
        context = min((slot["n_ctx"] for slot in slots), default=None)
        context_source = "/slots[].n_ctx"
        if context is None and not self._has_slots:
            context, context_source = (props.get("default_generation_settings") or {}).get("n_ctx"), "/props n_ctx"
        speculative = [slot["speculative"] for slot in slots if slot.get("speculative") is not None]
        return {
            "n_slots": Fact(count, where),
            "n_ctx_per_slot": Fact(context, context_source),
            "context_tokens": Fact(context, context_source),
            "cap": Fact(count, where),
            "cap_source": Fact(f"its slots, {CAP_FLAG}", where),
            "cap_flag": Fact(CAP_FLAG, "llama.cpp's own option"),
            "ranks": Fact(1, "llama.cpp has no data parallelism"),
            "speculative": Fact(any(speculative) if speculative else None, "/slots[].speculative"),
            "weight_bytes": Fact(meta.get("size"), "/v1/models meta.size"),
            "checkpoint_format": _checkpoint_format(meta, log_lines.of_target(log)),
            "checkpoint_path": Fact(props.get("model_path"), "/props.model_path"),
            "model_path": Fact(props.get("model_path"), "/props.model_path"),
            "model_name": Fact(self.model, "/v1/models id"),
            "omp_wait_policy": self._variable("OMP_WAIT_POLICY"),
            **facts_of_log(log),
        }

    def _page(self) -> _prometheus.Page:
        if not self._has_metrics:
            return _prometheus.Page({})
        return _prometheus.scrape(self.control, _SAMPLED)

    def _pool_tokens(self, slots: list[dict[str, Any]]) -> int | None:
        """Cells of the whole cache, as the log or a slot that is alone says; None where several slots may share it:
        over HTTP a shared one looks like slots of that size each."""
        if self._logged_pool_tokens is None and len(slots) == 1:
            return slots[0]["n_ctx"]
        return self._logged_pool_tokens

    @cached_property
    def _logged_pool_tokens(self) -> int | None:
        cache = log_lines.kv_cache(log_lines.lines(self.log_text()))
        return cache.tokens if cache else None

    def _variable(self, name: str) -> Fact:
        """A variable of the process's real environment; None: unset."""
        if self.pid is None:
            return Fact(None, "the process is out of reach")
        try:
            value = environment_of(self.pid).get(name)
        except OSError:
            return Fact(None, "the process has ended")
        return Fact(value, f"/proc/PID/environ {name}" + ("" if value is not None else ": unset"))


def facts_of_log(log: list[log_lines.Line]) -> dict[str, Fact]:
    """What only the log says; every key is there, with None for what this log does not say."""
    target = log_lines.of_target(log)
    return {
        "speculative_types": Fact(*log_lines.speculative_types(log)),
        "flash_attention": Fact(*log_lines.flash_attention(log)),
        "graph_reuse": _graph_reuse(target),
        "graphs_reused": Fact(*(log_lines.graphs_reused(log) or (None, "no 'graphs reused' line"))),
        "kv_unified": _logged(target, "llama_context", "kv_unified", lambda word: word == "true"),
        "n_batch": _logged(target, "llama_context", "n_batch", int),
        "n_ubatch": _logged(target, "llama_context", "n_ubatch", int),
        "build": _build(log),
        "faked": Fact(*log_lines.faked(log)),
        **_threads(log),
        **_kv(log),
        **_buffers(target),
    }


def _logged(log: list[log_lines.Line], source: str, key: str, convert: Any) -> Fact:
    found = log_lines.value_after(log, source, key)
    return Fact(convert(found[0]), found[1]) if found else Fact(None, f"no '{source}: {key}' line")


def _checkpoint_format(meta: dict[str, Any], log: list[log_lines.Line]) -> Fact:
    """The weights' format, when the API and the log agree on it."""
    logged = log_lines.value_after(log, "print_info", "file type")
    source = f"/v1/models meta.ftype {meta.get('ftype')}; {logged[1] if logged else 'no file type line'}"
    said = {word for word in (meta.get("ftype"), logged and logged[0]) if word}
    return Fact(said.pop() if len(said) == 1 else None, source)


def _graph_reuse(log: list[log_lines.Line]) -> Fact:
    """Off only with the engine's own warning; unknown when the context was never logged."""
    for text in log_lines.texts(log, "graph reuse disabled"):
        return Fact(False, text)
    known = log_lines.texts(log, "llama_context: constructing llama_context")
    return Fact(True if known else None, "no 'graph reuse disabled' warning" if known else "no llama_context lines")


def _threads(log: list[log_lines.Line]) -> dict[str, Fact]:
    threads = log_lines.system_threads(log)
    decode, batch, text = threads or (None, None, "no 'system_info' line")
    return {"n_threads": Fact(decode, text), "n_threads_batch": Fact(batch, text)}


def _kv(log: list[log_lines.Line]) -> dict[str, Fact]:
    cache = log_lines.kv_cache(log)
    names = {"kv_dtype_k": "dtype_k", "kv_dtype_v": "dtype_v", "kv_bytes": "bytes", "kv_tokens": "tokens"}
    source = cache.text if cache else "no 'llama_kv_cache: size' line"
    return {key: Fact(getattr(cache, name, None), source) for key, name in names.items()}


def _buffers(log: list[log_lines.Line]) -> dict[str, Fact]:
    """How the weights were loaded, and the bytes held again in a repacked layout (0: the log names none)."""
    mode = next((re.search(r"load_mode = (\w+)", text) for text in log_lines.texts(log, "load_mode = ")), None)
    loaded = log_lines.texts(log, "model buffer size = ")
    repacked = [float(text.split(" = ")[1].split()[0]) for text in loaded if "REPACK" in text]
    return {
        "load_mode": Fact(mode[1] if mode else None, "load_tensors line" if mode else "no load_mode in the log"),
        "repacked_bytes": Fact(
            round(sum(repacked) * log_lines.MIB) if loaded else None, "; ".join(loaded) or "no buffer lines"
        ),
    }


def kv_usage(slots: list[dict[str, Any]], pool_tokens: int | None) -> float | None:
    """Share of the whole cache that busy slots hold; None when its size or what a slot holds is unknown.

    `n_prompt_tokens` grows with every generated token: in the capture slots_loaded.txt it is the sum of those processed
    and those decoded.
    """
    held = [slot.get("n_prompt_tokens") for slot in slots if slot["is_processing"]]
    if not slots or not pool_tokens or None in held:
        return None
    return sum(held) / pool_tokens


def _build(log: list[log_lines.Line]) -> Fact:
    """The wheel's version; its last part is llama.cpp's build number (the server itself says b0-unknown)."""
    for text in log_lines.texts(log, "BUILD xllamacpp "):
        version = text.rsplit(" ", 1)[1]
        number = version.rsplit(".", 1)[-1]
        return Fact(f"llama.cpp b{number} (xllamacpp {version})", "package metadata in the server's Python")
    return Fact(None, "no BUILD line")
