"""What every kind of workload must say of itself, and in which words it hands over its prompts.

Without one contract the campaign file could not tell which fields a kind uses, and each kind would salt, repeat
and leave out prompts by rules of its own. A new kind is one file: a subclass of `Kind` under `@register`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from lab.errors import InputError

Item = dict[str, Any]
REGISTERED: dict[str, Kind] = {}
TOKENS_PER_WORD = 1.6
"""Above what tokenizers of English text and of code need for a word cut at blanks; 1.3 to 1.5 is usual."""
CHARACTERS_PER_TOKEN = 3.0
"""For text with long words, such as code without blanks: the larger of the two estimates counts."""
TEMPLATE_TOKENS = 64
"""What a chat template adds: a few tokens a message, and the default system prompt that some bring (30 at SmolLM2)."""
TAG_TOKENS = 16
"""What the tag before each prompt adds: a dozen characters."""


class Tokenizes(Protocol):
    """The server's tokenizer, as `lab.load.tokenizer.Tokenizer` has it; counts are without special tokens."""

    source: str

    def tokens(self, text: str) -> list[int]: ...

    def text(self, ids: list[int]) -> str: ...


@dataclass(frozen=True)
class Ask:
    """What a kind is asked for: `count` prompts under `salt`.

    folder: where relative paths start; max_prompt_tokens: the longest prompt that the server takes, None: any.
    """

    workload: Any
    salt: str
    count: int
    tokenizer: Tokenizes | None
    folder: Path
    max_prompt_tokens: int | None

    def fits(self, text: str, templated: bool) -> bool:
        """Whether the server's context holds a prompt of this text behind a tag: by its tokenizer, else by estimate."""
        if self.max_prompt_tokens is None:
            return True
        room = self.max_prompt_tokens - TAG_TOKENS - (TEMPLATE_TOKENS if templated else 0)
        if len(text.encode()) <= room:  # no tokenizer makes more than one token of a byte
            return True
        tokens = len(self.tokenizer.tokens(text)) if self.tokenizer else estimated_tokens(text)
        return tokens <= room

    def require_room(self, tokens: int, what: str) -> None:
        """Raise InputError when a prompt of `tokens` tokens exceeds what the server takes."""
        if self.max_prompt_tokens is not None and tokens > self.max_prompt_tokens:
            raise InputError(
                f"{what} make prompts of {tokens} tokens, the server takes {self.max_prompt_tokens}: "
                "ask for less, or give the server a longer context"
            )


@dataclass(frozen=True)
class Material:
    """What a kind hands over.

    items: in order of sending; api: what they go to; left_out: prompts that the server's context would not hold, or
    lines without a question; reuse: prompts share beginnings on purpose; synthetic: random words; input_tokens: the
    prompt length asked for, None where there is no single one; input_tokens_exact: whether the server counts exactly
    the lengths asked for, None where none is; length_source: how lengths were made.
    """

    items: list[Item]
    api: str
    left_out: int = 0
    reuse: bool = False
    synthetic: bool = False
    input_tokens: int | None = None
    input_tokens_exact: bool | None = None
    length_source: str | None = None


class Kind(ABC):
    """One kind of workload.

    needs, takes: fields of the campaign's workload that must and may be given, beyond those of every kind; api: the
    usual one, None where the lines of a file decide; brings_output_tokens: a prompt may carry its own cap on the
    answer; brings_arrivals: prompts carry the times at which they are due; synthesises: prompts are made to a length,
    which takes the server's tokenizer to be exact.
    """

    name: ClassVar[str]
    needs: ClassVar[frozenset[str]] = frozenset()
    takes: ClassVar[frozenset[str]] = frozenset()
    api: ClassVar[str | None] = None
    brings_output_tokens: ClassVar[bool] = False
    brings_arrivals: ClassVar[bool] = False
    synthesises: ClassVar[bool] = False

    def check(self, workload: Any, folder: Path, seconds: float) -> None:  # noqa: B027 (most kinds read no file)
        """Raise InputError for what is wrong in the files that the workload names, or too little for so many seconds
        of warm-up and window."""

    @abstractmethod
    def compose(self, ask: Ask) -> Material:
        """The prompts, always the same for the same salt; raises InputError for files and sizes that cannot be."""


def register(kind: type[Kind]) -> type[Kind]:
    """Class decorator: make a kind known under its `name`; a name taken twice is a mistake."""
    if kind.name in REGISTERED:
        raise ValueError(f"two kinds of workload are called {kind.name}")
    REGISTERED[kind.name] = kind()
    return kind


def estimated_tokens(text: str) -> float:
    """Tokens of a text, rather too many than too few: a prompt that does not fit fails."""
    return max(TOKENS_PER_WORD * len(text.split()), len(text) / CHARACTERS_PER_TOKEN)
