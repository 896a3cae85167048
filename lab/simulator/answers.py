"""What a simulated model says: the same prompt always gets the same answer, one piece of text a token.

Without answers that follow from the prompt, two arms could not be compared prompt by prompt, and no accuracy
check would have anything to check.
"""

from __future__ import annotations

import hashlib
import random
import re

from lab.simulator import tokens
from lab.simulator.truth import Truth

_WORDS_TEXT = (
    " the of and to in is that it was for on are as with his they at be this from or had by word but what some we can"
    " out other were all there when up use your how said an each she which do their time if will way about many then"
    " them write would like so these her long make thing see him two has look more day could go come did number sound"
    " no most people my over know water than call first who may down side been now find any new work part take get"
    " place made live where after back little only round man year came show every good me give our under name very"
)
_WORDS = tokens.pieces(_WORDS_TEXT)
_LENGTH = 4096
_SUM = re.compile(r"[Ww]hat is (\d{1,9}) \+ (\d{1,9})\?")


class Answers:
    """Makes the tokens of answers."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._seed = f"{truth.seed}".encode()
        choose = random.Random(0)  # the words themselves are the same for every seed
        self._text = [choose.choice(_WORDS) for _ in range(_LENGTH)]

    def share(self, prompt_digest: bytes, purpose: str) -> float:
        """A number in [0, 1) that belongs to a prompt and a purpose."""
        mixed = hashlib.blake2b(self._seed + purpose.encode() + prompt_digest, digest_size=8).digest()
        return int.from_bytes(mixed) / 2**64

    def length(self, prompt_digest: bytes, text: str, max_tokens: int, ignore_eos: bool) -> int:
        """Tokens of the answer."""
        output = self._truth.output
        if ignore_eos and not output.ignores_ignore_eos:
            return max_tokens
        if self.share(prompt_digest, "stop") < output.stop_early_share:
            return max(1, round(max_tokens * output.stop_early_factor))
        said = self._said(prompt_digest, text)
        return min(max_tokens, len(said) + output.reasoning_tokens) if said else max_tokens

    def pieces(self, prompt_digest: bytes, text: str, length: int) -> list[str]:
        """The answer, one text a token; reasoning first."""
        start = int(self.share(prompt_digest, "text") * _LENGTH)
        words = [self._text[(start + at) % _LENGTH] for at in range(length)]
        said = self._said(prompt_digest, text)
        if said:
            skip = self._truth.output.reasoning_tokens
            words[skip : skip + len(said)] = said[: max(0, length - skip)]
        elif self.share(prompt_digest, "loop") < self._truth.output.repeats:
            half = length // 2
            words[half:] = [words[half + at % 2] for at in range(length - half)]
        return words

    def _said(self, prompt_digest: bytes, text: str) -> list[str]:
        """The answer to a question of arithmetic, else nothing."""
        asked = _SUM.findall(text)
        if not asked:
            return []
        right = sum(int(number) for number in asked[-1])  # the last question: examples may come before it
        wrong = self.share(prompt_digest, "corrupt") < self._truth.output.corrupt_share
        return tokens.pieces(f" {right + 1 if wrong else right}.")
