"""Which engine answers at a URL, and a server to look into.

Without it a person would have to say what a server is before the lab can say how it runs, and would say it wrongly: a
proxy, an old release and a server that is still loading look alike from outside.
"""

from __future__ import annotations

import base64
import re
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import requests

from lab.engines import readers
from lab.engines._control import Control
from lab.engines.base import Reader
from lab.engines.server import Server
from lab.errors import InputError
from lab.files import quoted, suggest
from lab.secrets import redacted

TIMEOUT_SECONDS = 10.0
LONGEST_URL, LONGEST_HOST = 500, 253
_KEY_WANTED = (401, 403)
_BUSY = (502, 503, 504)
_API_PATH = re.compile(r"/+v1(/(chat/completions|completions|models))?$")


def recognise(
    url: str,
    headers: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT_SECONDS,
    model: str | None = None,
    key_from: str | None = None,
) -> Server:
    """The running server at `url` (http or https, perhaps with a path before the API's own), ready to be read.

    headers: sent with every request, a key among them; never recorded. model: which of the served ones, None for the
    first. key_from: where the key comes from, for the words of a refusal. Told apart by the names on /metrics, then by
    `owned_by` of /v1/models, then by a page that only one engine has. Raises InputError, in one line: no URL, no such
    host, nothing answers, no engine the lab knows, a key is wanted or refused, still loading, no such model.
    """
    base, headers = address(url, headers)
    control = Control(base, headers, timeout)
    try:
        models = _models(control, _refused_key(headers, key_from))
        reader = _reader_of(control, models)
        name = _model(control.url, models, model)
        server = reader.attach(base, name, headers)
        if not server.alive():
            raise InputError(
                f"{base}: a {reader.name} server answers but says at {server.health_path} that it cannot serve: "
                "it is still loading, or has died; try again, or look into its log"
            )
    except requests.RequestException as error:
        raise InputError(_explained(base, error, timeout)) from error
    return server


def address(url: str, headers: Mapping[str, str] | None = None) -> tuple[str, dict[str, str]]:
    """The base below which the API lies, and the headers; a user and password in the URL become a header.

    Raises InputError for what no server can be reached at, before anything is sent.
    """
    headers, asked = dict(headers or {}), quoted(shown(url))
    try:
        parts = urlsplit(url.strip() if "://" in url else f"http://{url.strip()}")
        port = parts.port
    except ValueError as error:
        raise InputError(f"url: {asked} is no address ({error})") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InputError(f"url: {asked} is no server address; write http://HOST:PORT or https://HOST/PATH")
    if len(shown(url)) > LONGEST_URL:
        raise InputError(f"url: {asked} is longer than {LONGEST_URL} characters")
    if not _may_be_host(parts.hostname):
        raise InputError(f"url: {asked} is no address: no host can be called {quoted(parts.hostname)}")
    if parts.username:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers.setdefault("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = _API_PATH.sub("", parts.path.rstrip("/"))
    return urlunsplit((parts.scheme, f"{host}:{port}" if port else host, path, "", "")), headers


def _may_be_host(name: str) -> bool:
    """Whether a name can be looked up at all: labels of 1 to 63 letters, 253 in all, of letters that names may have."""
    if ":" in name:
        return True
    try:
        requests.Request("GET", f"http://{name}").prepare()
        return len(name.encode("idna")) <= LONGEST_HOST
    except (requests.RequestException, UnicodeError):
        return False


def _refused_key(headers: Mapping[str, str], key_from: str | None) -> str:
    """What to say when the server wants a key: that it got none, or which one it did not take."""
    if key_from:
        return f"the server refused the key in {key_from}"
    if any(name.lower() == "authorization" for name in headers):
        return "the server refused the key or password that it got"
    return "the server wants a key; --key-env names the variable that holds it"


def _models(control: Control, no_key: str) -> list[dict[str, Any]]:
    """What /v1/models lists; empty where there is no such page."""
    answer = control.get("/v1/models")
    _refuse(control, answer, no_key)
    try:
        listed = answer.json()
    except requests.JSONDecodeError:
        return []
    rows = listed.get("data") if isinstance(listed, dict) else None
    rows = rows if isinstance(rows, list) else []
    return [row for row in rows if isinstance(row, dict) and row.get("id") and isinstance(row["id"], str)]


def _reader_of(control: Control, models: list[dict[str, Any]]) -> Reader:
    known = readers().values()
    answer = control.get("/metrics")
    page = answer.text.splitlines() if answer.ok else []
    for reader in known:
        if reader.metrics_prefix and any(line.startswith(reader.metrics_prefix) for line in page):
            return reader
    for reader in known:
        if reader.owned_by and any(row.get("owned_by") == reader.owned_by for row in models):
            return reader
    for reader in known:
        if reader.own_page[0] and reader.own_page[1] in _object(control, reader.own_page[0]):
            return reader
    tried = ["/v1/models owned_by", "/metrics", *(reader.own_page[0] for reader in known if reader.own_page[0])]
    raise InputError(
        f"{control.url}: something answers, but it is none of {', '.join(sorted(r.name for r in known))} "
        f"(tried {', '.join(tried)}); is the port right, and the path before /v1?"
    )


def _object(control: Control, path: str) -> dict[str, Any]:
    """The JSON object at a path; {} when there is none."""
    answer = control.get(path)
    try:
        content = answer.json() if answer.ok else {}
    except requests.JSONDecodeError:
        return {}
    return content if isinstance(content, dict) else {}


def _model(url: str, models: list[dict[str, Any]], wanted: str | None) -> str:
    names = [row["id"] for row in models]
    if wanted is None:
        if not names:
            raise InputError(f"{url}: /v1/models lists no model; name it")
        return names[0]
    if names and wanted not in names:
        raise InputError(f"{url}: model '{wanted}' is not served{suggest(wanted, names)}")
    return wanted


def _refuse(control: Control, answer: requests.Response, no_key: str) -> None:
    """Raise InputError for answers that say why no other one will be better."""
    url = control.url
    if answer.status_code in _KEY_WANTED:
        raise InputError(f"{url}: {no_key} (status {answer.status_code})")
    if answer.is_redirect:
        raise InputError(
            f"{url}: sends on to {shown(control.concealed(answer.headers['Location']))}; give that address"
        )
    if answer.status_code in _BUSY:
        text = control.concealed(" ".join(answer.text.split()), 100)
        raise InputError(f"{url}: still loading, or nothing behind it (status {answer.status_code}: {text}); try later")


def shown(url: str) -> str:
    """An address without the user and password that it may carry."""
    return url.strip().rpartition("@")[2]


def _explained(url: str, error: requests.RequestException, timeout: float) -> str:
    if isinstance(error, requests.exceptions.InvalidHeader):
        return f"{url}: a header cannot be sent as it is; a key is one line of plain characters"
    if isinstance(error, requests.exceptions.SSLError):
        return f"{url}: the certificate is not trusted, or it speaks no https; name its authority in SSL_CERT_FILE"
    if isinstance(error, requests.Timeout):
        return f"{url}: no answer within {timeout:g} s; is the server loading or hanging?"
    if isinstance(error, requests.ConnectionError) and _unresolved(error):
        return f"{url}: no such host: this machine finds no address for the name; is it spelled right?"
    if isinstance(error, requests.ConnectionError):
        return f"{url}: nothing listens there, or it speaks no HTTP; is the server running, and the port right?"
    return f"{url}: {' '.join(redacted(str(error)).split())[:200]}"


def _unresolved(error: BaseException) -> bool:
    """Whether the connection failed because the name has no address, which the innermost error says."""
    causes: list[BaseException] = [error]
    while causes:
        one = causes.pop()
        if isinstance(one, socket.gaierror):
            return True
        inner = [getattr(one, "reason", None), one.__cause__, one.__context__, *one.args]
        causes += [cause for cause in inner if isinstance(cause, BaseException) and cause is not one]
    return False
