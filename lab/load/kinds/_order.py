"""Salted tags and orders of prompts.

Without a tag before each prompt, two trials share prefixes and the second is answered from a cache; without a second
order, a list that is gone through again meets the server in the same company.
"""

from __future__ import annotations

import base64
import hashlib
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from lab.load.kinds.base import Item

TAG_CHARACTERS = 5
Prompt = TypeVar("Prompt")


def tags(salt: str) -> Iterator[str]:
    """Short tags, all different, and different for every salt: the beginning of each prompt of a list."""
    word = base64.b32encode(hashlib.sha256(salt.encode()).digest()).decode()[:TAG_CHARACTERS].lower()
    number = 0
    while True:
        number += 1
        yield f"[{word} {number}] "


def tagged(item: Item, tag: str) -> Item:
    """The item with `tag` before its text, or before the text of its first message; the item itself stays."""
    if "text" in item:
        return item | {"text": tag + item["text"]}
    first, *rest = item["messages"]
    content = first["content"]
    content = [{"type": "text", "text": tag}, *content] if isinstance(content, list) else tag + (content or "")
    return item | {"messages": [first | {"content": content}, *rest]}


def spread(prompts: Iterable[tuple[str, Prompt]], shuffle: random.Random) -> list[Prompt]:
    """The prompts of (category, prompt) pairs in a shuffled order in which every stretch holds every category in
    proportion."""
    categories: defaultdict[str, list[Prompt]] = defaultdict(list)
    for category, prompt in prompts:
        categories[category].append(prompt)
    placed: list[tuple[float, Prompt]] = []
    for members in categories.values():
        shuffle.shuffle(members)
        placed += [((index + shuffle.random()) / len(members), prompt) for index, prompt in enumerate(members)]
    return [prompt for _, prompt in sorted(placed, key=lambda pair: pair[0])]


def endless(prompts: Sequence[tuple[str, Any]], seed: str) -> Iterator[Any]:
    """The prompts again and again, each round in another order; the orders depend on `seed` alone."""
    shuffle = random.Random(seed)
    while prompts:
        yield from spread(prompts, shuffle)


def addressed(item: Item, api: str) -> Item:
    """The item as the API takes it: the chat API takes messages, so a text becomes what a user says."""
    if api != "chat" or "text" not in item:
        return item
    rest = {key: value for key, value in item.items() if key != "text"}
    return {"messages": [{"role": "user", "content": item["text"]}], **rest}
