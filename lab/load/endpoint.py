"""Where requests go, and the bytes of one.

Without one place that holds the headers, a key ends up in an error text, and each sender spells the path its own
way.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import orjson

from lab.errors import InputError
from lab.load import apis
from lab.load.events import Fault
from lab.secrets import concealed, in_headers

MESSAGE_CHARACTERS = 300
_HEADERS = {"Accept": "text/event-stream", "Content-Type": "application/json", "Connection": "keep-alive"}


class Endpoint:
    """One API of one server: http:// or https://, with or without a path or a trailing /v1.

    headers: sent with every request, over the usual ones; they may hold a secret (see `presentable`). tls: what
    to trust with https://, `ssl.create_default_context()` when None. Raises InputError for an address or a header
    that cannot be sent.
    """

    def __init__(
        self,
        server_url: str,
        api: str = "chat",
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        try:
            parts = urlsplit(server_url)
            port = parts.port
        except ValueError as error:
            raise InputError(f"server_url: '{server_url}' is no address ({error})") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"server_url: '{server_url}' is no http:// or https:// address")
        secure = parts.scheme == "https"
        self.tls = (tls or ssl.create_default_context()) if secure else None
        self.host = parts.hostname
        self.port = port or (443 if secure else 80)
        given = dict(headers or {})
        self._secrets = in_headers(given)
        path = parts.path.rstrip("/").removesuffix("/v1") + apis.get(api).path
        named = {name.lower() for name in given}
        usual = {"Host": parts.netloc.rpartition("@")[2]} | _HEADERS
        lines = {name: value for name, value in usual.items() if name.lower() not in named} | given
        for name, value in lines.items():
            if not (name.isascii() and name.isprintable() and value.isprintable()) or ":" in name or not name.strip():
                raise InputError(f"headers: '{name}' cannot be sent; names and values are one printable line each")
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._head = f"POST {path} HTTP/1.1\r\n{head}Content-Length: ".encode()

    def payload(self, body: dict[str, Any]) -> bytes:
        """The bytes of one POST."""
        content = orjson.dumps(body)
        return b"%b%d\r\n\r\n%b" % (self._head, len(content), content)

    def presentable(self, fault: Fault) -> Fault:
        """The fault without the secrets of the headers (servers quote the key they refuse); at most 300 characters."""
        text = concealed(fault.text, self._secrets, MESSAGE_CHARACTERS)
        return fault if text == fault.text else Fault(fault.kind, text)
