"""The kind `random`: synthetic prompts of one exact length.

Without prompts of one length nobody can say at which context a step time was measured. They say nothing about
speculation, whose drafts depend on real text.
"""

from __future__ import annotations

from lab.load.kinds._order import addressed
from lab.load.kinds._words import Words
from lab.load.kinds.base import Ask, Kind, Material, register


@register
class RandomWords(Kind):
    """Random common words, `input_tokens` of them counted by the server's tokenizer; no two prompts share a beginning.

    Where the API takes token ids the length is exact by construction. Under the chat API the text is cut to the length
    and the template comes on top.
    """

    name = "random"
    synthesises = True
    needs = frozenset({"input_tokens"})
    api = "completions"

    def compose(self, ask: Ask) -> Material:
        api, tokens = ask.workload.api or self.api, ask.workload.input_tokens
        ask.require_room(tokens, f"input_tokens: {tokens}")
        words = Words(ask, api)
        items = [addressed(words.item(f"prompt {number}", tokens), api) for number in range(ask.count)]
        return Material(
            items,
            api,
            synthetic=True,
            input_tokens=tokens,
            input_tokens_exact=words.as_ids,
            length_source=words.source,
        )
