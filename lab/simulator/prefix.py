"""The prefix cache: which leading blocks of a prompt were computed before.

Without it no test could show that prompts sent twice make a server look fast.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class PrefixCache:
    """Remembers whole blocks of prompts, least recently used ones forgotten first."""

    def __init__(self, block_tokens: int, capacity_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._capacity = max(1, capacity_tokens // block_tokens)
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def blocks(self, ids: Sequence[int]) -> list[int]:
        """Names of the prompt's whole blocks, each with everything before it."""
        names, name = [], 0
        size = self._block_tokens
        for end in range(size, len(ids) + 1, size):
            name = hash((name, tuple(ids[end - size : end])))
            names.append(name)
        return names

    def hit_tokens(self, blocks: Sequence[int], prompt_tokens: int) -> int:
        """Leading tokens found; the last token of a prompt is always computed."""
        found = 0
        for name in blocks:
            if name not in self._blocks:
                break
            self._blocks.move_to_end(name)
            found += 1
        while found and found * self._block_tokens > prompt_tokens - 1:
            found -= 1
        return found * self._block_tokens

    def remember(self, blocks: Sequence[int]) -> None:
        """Keep the blocks of a prompt that has been computed."""
        for name in blocks:
            self._blocks[name] = None
            self._blocks.move_to_end(name)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        self._blocks.clear()
