"""Asks a running server a fixed list of sums, and keeps which answers were right.

Without the same questions in both arms, a drop of a few points cannot be told from harder questions.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lab.files import digest
from lab.http_session import content, session

ITEMS = 200
THREADS = 4
# Room for "123 + 456 = 579." and no more: a model that rambles costs its time in every arm.
MAX_TOKENS = 16
TIMEOUT_SECONDS = 120.0
# Ranges of the two numbers, in turn: easy sums for small models, harder ones that a large model may lose first.
LEVELS = ((1, 20), (10, 99), (100, 999))
TEMPLATE = "What is {a} + {b}? Answer with the number only."
PATH = "/v1/chat/completions"
_ANSWER = {"choices": [{"message": {"content?": str}}]}
_NUMBER = re.compile(r"-?\d+")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


def questions(items: int) -> dict[str, tuple[str, int]]:
    """Id → (question, right answer): sums of two numbers below a thousand, always the same, no id twice.

    `items` up to a thousand, since the easiest level holds 400 different sums.
    """
    chance = random.Random("sums")
    found: dict[str, tuple[str, int]] = {}
    while len(found) < items:
        low, high = LEVELS[len(found) % len(LEVELS)]
        a, b = chance.randint(low, high), chance.randint(low, high)
        found[f"{a}+{b}"] = (TEMPLATE.format(a=a, b=b), a + b)
    return found


def probe(
    server_url: str,
    model: str,
    *,
    items: int = ITEMS,
    extras: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    threads: int = THREADS,
) -> dict[str, Any]:
    """The record of one arm: items, right and wrong (ids), unparsed (count, among the wrong), protocol (digest).

    `extras` are body fields of every request, the same in both arms. The protocol names questions, template and
    sampling: records of different protocols are never compared. Raises requests.RequestException when the server does
    not answer, or with something else.
    """
    asked = questions(items)
    fields = {name: value for name, value in (extras or {}).items() if name != "stream_options"}  # refused unstreamed
    body = {"model": model, "temperature": 0, "max_tokens": MAX_TOKENS, "stream": False, **fields}

    def ask(question: str) -> int | None:
        messages = [{"role": "user", "content": question}]
        with session(headers) as made:
            answer = made.post(server_url + PATH, json={**body, "messages": messages}, timeout=TIMEOUT_SECONDS)
        answer.raise_for_status()
        choices = content(answer, PATH, _ANSWER)["choices"]
        return parse(choices[0]["message"].get("content")) if choices else None

    with ThreadPoolExecutor(threads) as pool:
        answers = dict(zip(asked, pool.map(ask, [question for question, _ in asked.values()]), strict=True))
    right = [key for key, (_, expected) in asked.items() if answers[key] == expected]
    return {
        "items": items,
        "right": right,
        "wrong": [key for key in asked if key not in set(right)],
        "unparsed": sum(answer is None for answer in answers.values()),
        "protocol": digest([list(asked), TEMPLATE, {**body, "model": None}]),
    }


def parse(content: str | None) -> int | None:
    """The last whole number of an answer, after any reasoning; None without one."""
    text = _THOUSANDS.sub("", (content or "").rpartition("</think>")[2])
    numbers = _NUMBER.findall(text)
    return int(numbers[-1]) if numbers else None
