"""Streams and answers of the OpenAI-style APIs, as byte templates filled in token by token.

Without templates every chunk would be built and encoded as a whole, and hundreds of streams would cost a core.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import orjson

from lab.simulator.ask import Ask
from lab.simulator.dialects.base import event
from lab.simulator.request import Request
from lab.simulator.truth import Truth

DONE = b"data: [DONE]\n\n"


@dataclass
class OpenAIForm:
    """What the chat and text forms share. Subclasses give the templates of their engine."""

    ask: Ask
    request: Request
    truth: Truth
    model: str
    identity: str

    def __post_init__(self) -> None:
        self.created = int(time.time())
        self.chat = self.ask.api == "chat"
        self.continuous = self.ask.continuous_usage and self.truth.usage == "continuous"
        self.final_usage = (self.ask.include_usage or self.continuous) and self.truth.usage != "none"

    def usage(self, counted: int) -> dict[str, Any]:
        """The token counts, in this engine's shape."""
        raise NotImplementedError

    def usage_bytes(self, counted: int) -> bytes:
        """The counts of a chunk, without the details."""
        prompt = self.request.prompt_tokens
        return b'{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}' % (prompt, prompt + counted, counted)


class TemplateForm(OpenAIForm):
    """Chunks cut from a template: head, text, tail."""

    error_event = b""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._head = self.head()
        self._names = {False: b'{"content":', True: b'{"%b":' % self.truth.output.reasoning_field.encode()}

    def head(self) -> bytes:
        """The bytes of a chunk up to the choice's text or delta."""
        raise NotImplementedError

    def tail(self, reason: str, counted: int) -> bytes:
        """The bytes of a chunk after the text or delta."""
        raise NotImplementedError

    def chunk(self, text: str, tokens: int, counted: int, reasoning: bool, reason: str) -> bytes:
        """See `stream.Form`."""
        content = orjson.dumps(text)
        if self.chat:
            content = self._names[reasoning] + content + b"}"
        return event(self._head + content + self.tail(reason, counted))
