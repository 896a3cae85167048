"""The kind `shared_prefix`: many questions behind a few long beginnings.

Without it prefix caching, the whole point of which is that prompts begin alike, is measured on prompts that never do.
"""

from __future__ import annotations

import random

from lab.load.kinds._order import addressed
from lab.load.kinds._words import Words
from lab.load.kinds.base import Ask, Kind, Material, register


@register
class SharedPrefix(Kind):
    """`prefixes` beginnings of `prefix_tokens` each, and behind them questions of `input_tokens`, all different.

    Every round asks behind each beginning once, in another order. Words come from the salt: the arms of a pass share
    beginnings, passes do not. A prompt is prefix_tokens + input_tokens long, counted as for the kind `random`.
    """

    name = "shared_prefix"
    synthesises = True
    needs = frozenset({"prefix_tokens", "prefixes", "input_tokens"})
    api = "completions"

    def compose(self, ask: Ask) -> Material:
        workload = ask.workload
        api = workload.api or self.api
        tokens = workload.prefix_tokens + workload.input_tokens
        ask.require_room(tokens, f"prefix_tokens: {workload.prefix_tokens} and input_tokens: {workload.input_tokens}")
        words, shuffle = Words(ask, api), random.Random(self.name)
        groups: list[int] = []
        while len(groups) < ask.count:
            groups += shuffle.sample(range(workload.prefixes), workload.prefixes)
        items = [
            words.item(f"question {number}", workload.input_tokens, ((f"prefix {group}", workload.prefix_tokens),))
            for number, group in enumerate(groups[: ask.count])
        ]
        return Material(
            [addressed(item, api) for item in items],
            api,
            reuse=True,
            synthetic=True,
            input_tokens=tokens,
            input_tokens_exact=words.as_ids,
            length_source=words.source,
        )
