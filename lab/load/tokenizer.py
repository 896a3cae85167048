"""The served model's own tokenizer, over HTTP.

Without it a prompt "of 512 tokens" is 512 of somebody else's tokens, and the prefill that is measured is not the one
that was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lab.errors import LabError

if TYPE_CHECKING:
    import requests

CONNECT_SECONDS, ANSWER_SECONDS = 3.0, 20.0
PROBE = "one two three"


@dataclass(frozen=True)
class Dialect:
    """How a family of servers spells the two endpoints."""

    servers: str
    text_field: str
    switches: Mapping[str, bool]
    names_model: bool
    answer_fields: tuple[str, ...]


# llama.cpp, tools/server: /tokenize {"content"} → {"tokens"}, /detokenize {"tokens"} → {"content"}.
# vLLM, entrypoints/serve/tokenize/protocol.py: {"model", "prompt"} → {"tokens"}, {"model", "tokens"} → {"prompt"};
# SGLang, entrypoints/openai/protocol.py: the same but for the last field, "text".
DIALECTS = (
    Dialect("llama.cpp", "content", {"add_special": False}, False, ("content",)),
    Dialect("vLLM, SGLang", "prompt", {"add_special_tokens": False}, True, ("prompt", "text")),
)


class Tokenizer:
    """A server's tokenizer; special tokens (a beginning-of-sequence, a template's) are neither added nor counted.

    source: for the record, where the counts come from.
    """

    def __init__(self, server_url: str, model: str, session: requests.Session, dialect: Dialect) -> None:
        self._base = server_url.rstrip("/").removesuffix("/v1")
        self._session = session
        self._dialect = dialect
        self._model = {"model": model} if dialect.names_model else {}
        self.source = f"POST /tokenize of the server ({dialect.servers})"

    def tokens(self, text: str) -> list[int]:
        """The ids of a text; raises LabError when the server does not answer as it should."""
        answer = self._ask("/tokenize", {self._dialect.text_field: text, **self._dialect.switches})
        ids = answer.get("tokens")
        if not isinstance(ids, list) or not all(isinstance(number, int) for number in ids):
            raise LabError(f"{self._base}/tokenize: answers without a list of token ids")
        return ids

    def text(self, ids: list[int]) -> str:
        """The text of a list of ids; raises LabError when the server does not answer as it should."""
        answer = self._ask("/detokenize", {"tokens": ids})
        for field in self._dialect.answer_fields:
            if isinstance(answer.get(field), str):
                return answer[field]
        raise LabError(f"{self._base}/detokenize: answers without a text")

    def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        import requests

        try:
            answer = self._session.post(
                self._base + path, json=self._model | body, timeout=(CONNECT_SECONDS, ANSWER_SECONDS)
            )
            answer.raise_for_status()
            content = answer.json()
        except (requests.RequestException, ValueError) as error:
            raise LabError(f"{self._base}{path}: the tokenizer does not answer ({error})") from error
        return content if isinstance(content, dict) else {}


def find(server_url: str, model: str, headers: Mapping[str, str] | None = None) -> Tokenizer | None:
    """The tokenizer of a running server, None when it offers none; `headers` go with every request.

    A dialect counts only when it answers with tokens: llama.cpp accepts any body and then counts nothing.
    """
    from lab.http_session import session

    made = session(headers)
    for dialect in DIALECTS:
        tokenizer = Tokenizer(server_url, model, made, dialect)
        try:
            if tokenizer.tokens(PROBE):
                return tokenizer
        except LabError:
            continue
    return None
