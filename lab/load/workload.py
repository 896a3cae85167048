"""Which prompts a trial sends, and in which order.

Without prompts that are varied, salted and the same for every arm, a server answers from its prefix cache, or
one arm gets the easier questions; without quoted text, drafts copied from the prompt never fire and
speculation looks useless.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lab import files
from lab.errors import InputError

DATA = {"chat": Path(__file__).parent / "data" / "chat_prompts.jsonl"}
PROMPT_COUNT = 1024
"""A usual length of a trial's list: more than most trials send, since a prompt sent twice may be answered
from a cache."""
TAG_CHARACTERS = 5


@dataclass(frozen=True)
class Prompts:
    """An ordered list of chat messages; `digest` is the hex SHA-256 over exactly these messages in this order."""

    messages: list[list[dict[str, str]]]
    salt: str
    digest: str


def build(workload: Any, salt: str, count: int, data: Path | None = None) -> Prompts:
    """`count` prompts for a workload of the campaign (its `kind` is read), always the same for the same salt.

    The salt puts a short tag, different for every prompt, before each of them, so that no two trials share a
    prefix. The order depends on the kind alone: launches of different passes differ by their tags and not by
    what they ask. Categories are spread evenly over it; a list that is too short is gone through again in
    another order. `data` replaces the kind's own file. Raises InputError for an unknown kind or a damaged file.
    """
    if workload.kind not in DATA:
        raise InputError(f"workload kind '{workload.kind}' is unknown{files.suggest(workload.kind, DATA)}")
    prompts = load_prompts(data or DATA[workload.kind])
    shuffle = random.Random(workload.kind)
    tag = base64.b32encode(hashlib.sha256(salt.encode()).digest()).decode()[:TAG_CHARACTERS].lower()
    texts: list[str] = []
    while len(texts) < count:
        texts += spread(prompts, shuffle)
    messages = [
        [{"role": "user", "content": f"[{tag} {number}] {text}"}] for number, text in enumerate(texts[:count], 1)
    ]
    return Prompts(messages, salt, files.sha256_text(json.dumps(messages, ensure_ascii=False)))


def spread(prompts: tuple[tuple[str, str], ...], shuffle: random.Random) -> list[str]:
    """The texts of (category, text) pairs in a shuffled order in which every stretch holds every category in
    proportion."""
    categories = defaultdict(list)
    for category, text in prompts:
        categories[category].append(text)
    placed = []
    for texts in categories.values():
        shuffle.shuffle(texts)
        placed += [((index + shuffle.random()) / len(texts), text) for index, text in enumerate(texts)]
    return [text for _, text in sorted(placed)]


@cache
def load_prompts(path: Path) -> tuple[tuple[str, str], ...]:
    """(category, text) of every line of a JSON-lines file; raises InputError naming file and line."""
    prompts = []
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise InputError(f"{path}: prompts cannot be read ({error.strerror})") from error
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            prompts.append((entry["category"], entry["text"]))
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}:{number}: a prompt is one JSON object with category and text") from error
    if not prompts:
        raise InputError(f"{path}: holds no prompts")
    return tuple(prompts)
