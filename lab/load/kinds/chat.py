"""The kind `chat`: varied questions that people ask, under the model's own chat template.

Without prompts of several kinds one lever meets only the text that suits it: quoted text feeds n-gram speculation,
long documents load the cache, free answers feed neither.
"""

from __future__ import annotations

from functools import cache
from itertools import islice
from pathlib import Path

import orjson

from lab.errors import InputError
from lab.load.kinds._order import endless, tagged, tags
from lab.load.kinds.base import Ask, Item, Kind, Material, register

PROMPTS = Path(__file__).parents[1] / "data" / "chat_prompts.jsonl"
"""JSON lines of `category` and `text`: chat, code, maths, retrieval (a document, then a question that it answers),
repeat and edit (text to be quoted)."""


@register
class Chat(Kind):
    """The project's own list; documents too long for the server's context are left out.

    The order depends on the list alone, so launches of different passes differ by their tags and not by what they
    ask; every stretch of it holds every category in proportion.
    """

    name = "chat"
    takes = frozenset({"thinking"})
    api = "chat"

    def compose(self, ask: Ask) -> Material:
        api = ask.workload.api or self.api
        prompts = load_prompts(PROMPTS)
        fitting = [(category, text) for category, text in prompts if ask.fits(text, templated=api == "chat")]
        if not fitting and ask.count:
            raise InputError(f"{PROMPTS}: no prompt fits into {ask.max_prompt_tokens} tokens; lengthen the context")
        texts = islice(endless(fitting, self.name), ask.count)
        items = [tagged(_item(text, api), tag) for tag, text in zip(tags(ask.salt), texts, strict=False)]
        return Material(items, api, left_out=len(prompts) - len(fitting))


def _item(text: str, api: str) -> Item:
    return {"messages": [{"role": "user", "content": text}]} if api == "chat" else {"text": text}


@cache
def load_prompts(path: Path) -> tuple[tuple[str, str], ...]:
    """(category, text) of every line of a JSON-lines file; raises InputError naming file and line."""
    prompts = []
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InputError(f"{path}: prompts cannot be read ({error.strerror})") from error
    for number, line in enumerate(lines, 1):
        try:
            entry = orjson.loads(line)
            prompts.append((entry["category"], entry["text"]))
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}:{number}: a prompt is one JSON object with category and text") from error
    if not prompts:
        raise InputError(f"{path}: holds no prompts")
    return tuple(prompts)
