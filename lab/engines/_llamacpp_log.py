"""What llama.cpp says of itself in its log: lines, facts in them, and the reason of a failed start.

Without reading it, half of a configuration cannot be proven (cache types, graph reuse, speculation have no
field in the HTTP answers), and every failed start reads "please check the input params".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lab.engines.base import Failure

_STAMP = re.compile(r"\d+\.\d\d\.\d{3}\.\d{3} ([DIWE]) ")
MIB = 1024 * 1024

REASONS = (  # text → kind; the first line that holds one of them is the root cause, generic lines follow it
    ("failed to open GGUF file", "missing-checkpoint"),
    ("invalid magic", "missing-checkpoint"),
    ("failed to read", "missing-checkpoint"),
    ("quantized V cache requires flash_attn", "unsupported"),
    ("does not divide n_embd_head", "unsupported"),
    ("unknown model architecture", "unsupported"),
    ("couldn't bind HTTP server socket", "port-in-use"),
    ("failed to allocate", "out-of-memory"),
    ("unable to allocate", "out-of-memory"),
    ("out of memory", "out-of-memory"),
    ("bad_alloc", "out-of-memory"),
    ("GGML_ASSERT(", "crashed"),
)


@dataclass(frozen=True)
class Line:
    """One log line: level D, I, W or E (empty: no prefix) and its text."""

    level: str
    text: str


@dataclass(frozen=True)
class KvCache:
    """The target model's cache as logged; bytes to the log's resolution of 0.01 MiB."""

    dtype_k: str
    dtype_v: str
    tokens: int
    bytes: int
    text: str


def lines(log: str) -> list[Line]:
    """The log's complete lines; one that the server is just writing is left for the next look."""
    parsed = []
    for raw in log[: log.rfind("\n") + 1].splitlines():
        stamp = _STAMP.match(raw)
        parsed.append(Line(stamp[1], raw[stamp.end() :]) if stamp else Line("", raw))
    return parsed


def of_target(log: list[Line]) -> list[Line]:
    """The lines up to the load of a second, draft model, whose figures look like the target's."""
    loads = [i for i, line in enumerate(log) if line.text.startswith("llama_model_loader: loaded meta data")]
    return log[: loads[1]] if len(loads) > 1 else log


def texts(log: list[Line], fragment: str) -> list[str]:
    """The lines that hold a fragment, spaces collapsed."""
    return [" ".join(line.text.split()) for line in log if fragment in line.text]


def value_after(log: list[Line], source: str, key: str) -> tuple[str, str] | None:
    """The first `source: key = value`: the value's first word and the line; None when it was not logged."""
    start = f"{source}: {key} = "
    for text in texts(log, source):
        if text.startswith(start):
            return text.removeprefix(start).split()[0], text
    return None


def system_threads(log: list[Line]) -> tuple[int, int, str] | None:
    """Threads for decoding and batches, from `system_info: n_threads = 1 (n_threads_batch = 1) / 2 | …`."""
    for text in texts(log, "system_info: n_threads = "):
        short = text[text.index("system_info") :].split(" | ")[0]
        decode = re.search(r"n_threads = (\d+)", short)
        batch = re.search(r"n_threads_batch = (\d+)", short)
        if decode:
            return int(decode[1]), int((batch or decode)[1]), short
    return None


def kv_cache(log: list[Line]) -> KvCache | None:
    """From `llama_kv_cache: size = 180.00 MiB ( 2048 cells, 30 layers, 4/4 seqs), K (f16): …, V (f16): …`.

    "4/1 seqs" is 4 sequences in 1 shared pool. Models with windowed layers log one line for each kind of
    layer: bytes are added, tokens are those of the larger cache.
    """
    caches = []
    for text in texts(of_target(log), "llama_kv_cache: size = "):
        size = re.search(r"size = ([\d.]+) MiB", text)
        cells = re.search(r"\( ?(\d+) cells", text)
        pools = re.search(r"\d+/(\d+) seqs", text)
        k, v = re.search(r"K \((\w+)\)", text), re.search(r"V \((\w+)\)", text)
        if size and cells and pools and k and v:
            tokens = int(cells[1]) * int(pools[1])
            caches.append(KvCache(k[1], v[1], tokens, round(float(size[1]) * MIB), text))
    if not caches:
        return None
    largest = max(caches, key=lambda cache: cache.tokens)
    total = sum(cache.bytes for cache in caches)
    return KvCache(largest.dtype_k, largest.dtype_v, largest.tokens, total, largest.text)


def flash_attention(log: list[Line]) -> tuple[bool | None, str]:
    """Whether it is on: `flash_attn = enabled|disabled`, and for `auto` the line that resolves it."""
    target = of_target(log)
    said = value_after(target, "llama_context", "flash_attn")
    if said is None:
        return None, "no 'llama_context: flash_attn' line"
    if said[0] in ("enabled", "disabled"):
        return said[0] == "enabled", said[1]
    for text in texts(target, "Flash Attention "):
        return "enabled" in text, f"{said[1]}; {text}"
    return None, f"{said[1]}; nothing resolved it"


def graphs_reused(log: list[Line]) -> tuple[int, str] | None:
    """The count in the last `graphs reused = N`; cumulative over the server's life."""
    for text in reversed(texts(log, "graphs reused = ")):
        count = text.rsplit(" ", 1)[1]
        if count.isdigit():
            return int(count), text
    return None


def speculative_types(log: list[Line]) -> tuple[list[str] | None, str]:
    """Implementations in use, in the flags' spelling (ngram_simple); [] when the log says there is none."""
    added = texts(log, "adding speculative implementation '")
    if added:
        return [text.split("'")[1].replace("-", "_") for text in added], "; ".join(added)
    for fragment in ("no implementations specified", "failed to initialize speculative decoding context"):
        for text in texts(log, fragment):
            return [], text
    return None, "no line about speculative implementations"


def faked(log: list[Line]) -> tuple[str | bool | None, str]:
    """The warning of synthetic acceptance, which makes the output meaningless; None: this log says nothing at all."""
    for text in texts(log, "synthetic speculative acceptance is enabled"):
        return text, text
    return (False, "no warning of synthetic acceptance") if log else (None, "no log")


def failure(log: str, code: int | None) -> Failure:
    """Why the server ended, from its log and its exit code."""
    parsed = lines(f"{log}\n")
    errors = [line.text.strip() for line in parsed if line.level == "E"]
    detail = "\n".join(dict.fromkeys(errors)) or "\n".join(log.splitlines()[-5:])
    for text in [*errors, *(line.text for line in parsed if not line.level)]:
        if text.startswith("BADFLAG "):
            return Failure("bad-flag", text.removeprefix("BADFLAG "), detail)
        for fragment, kind in REASONS:
            if fragment in text:
                return Failure(kind, _without_source(text), detail)
    killed = code is not None and code < 0
    if errors and not killed:
        return Failure("crashed", _without_source(errors[0]), detail)
    last = next((line.text.strip() for line in reversed(parsed) if line.text.strip()), "it wrote nothing")
    how = f"killed by signal {-code}" if killed else f"exit code {code}"
    return Failure("crashed", f"{how}; last line: {last[:300]}", detail)


def _without_source(text: str) -> str:
    """`srv start: couldn't bind …` → `couldn't bind …`."""
    return re.sub(r"^(\w+ +)?[\w()~]+: ", "", text)
