"""The kind `jsonl`: the user's own prompts.

Without it a verdict holds for our questions, and whether it holds for theirs remains a guess.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

from lab.errors import InputError
from lab.load.kinds import _lines
from lab.load.kinds._order import addressed, endless, tagged, tags
from lab.load.kinds.base import Ask, Item, Kind, Material, register


@register
class JsonLines(Kind):
    """A file of one JSON object a line, or one JSON array: `messages`, `prompt`, `text`, or a ShareGPT conversation, of
    which the turns up to the last human one are sent. A line's `output_tokens` or `max_tokens` goes before the
    workload's.

    The API is `chat` when any line holds messages, else `completions`; under `chat` a text is what a user says. Lines
    are shuffled, always alike, so that a sorted file does not drift; each gets the tag of the trial before its first
    text, so system prompts that lines share are not reused from a cache. Lines too long for the server, and
    conversations in which nobody asks, are left out.
    """

    name = "jsonl"
    needs = frozenset({"path"})
    takes = frozenset({"thinking"})
    brings_output_tokens = True

    def check(self, workload: Any, folder: Path, seconds: float) -> None:
        _prompts(workload, folder)

    def compose(self, ask: Ask) -> Material:
        items, silent = _prompts(ask.workload, ask.folder)
        api = ask.workload.api or _lines.usual_api(items)
        fitting = [item for item in items if ask.fits(_lines.all_text(item), templated=api == "chat")]
        if not fitting and ask.count:
            raise InputError(
                f"{_lines.resolve(ask.folder, ask.workload.path)}: no prompt fits into "
                f"{ask.max_prompt_tokens} tokens; lengthen the server's context"
            )
        order = islice(endless([("", item) for item in fitting], self.name), ask.count)
        sent = [addressed(tagged(item, tag), api) for tag, item in zip(tags(ask.salt), order, strict=False)]
        return Material(sent, api, left_out=silent + len(items) - len(fitting))


def _prompts(workload: Any, folder: Path) -> tuple[list[Item], int]:
    """The items of the file, and how many lines hold none."""
    items, silent = [], 0
    for line in _lines.read(_lines.resolve(folder, workload.path)):
        prompt = line.prompt()
        if prompt is None:
            silent += 1
            continue
        line.require_chat(prompt, workload.api)
        items.append(prompt | line.cap(workload.output_tokens))
    if not items:
        raise InputError(f"{_lines.resolve(folder, workload.path)}: in no conversation does anybody ask")
    return items, silent
