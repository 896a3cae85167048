"""Everything that talks to a server besides the load trusts the same certificates and takes no proxy."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests

from lab.accuracy.probe import probe
from lab.engines._control import Control
from lab.engines._llamacpp_facts import LlamaCppServer
from lab.engines._readiness import no_completion
from lab.http_session import session
from lab.load import tokenizer
from lab.observe.clock import http_date_offset

ANSWER = {
    "tokens": [1],
    "model": "m",
    "usage": {"completion_tokens": 1},
    "choices": [{"message": {"content": "3"}}],
}


class Handler(BaseHTTPRequestHandler):
    """Answers everything with one object; keeps connections that nobody wants closed, and counts them all."""

    protocol_version = "HTTP/1.1"
    connections: set[Any]

    def do_GET(self) -> None:
        self.connections.add(self.client_address)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        data = json.dumps(ANSWER).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_POST = do_HEAD = do_GET

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate that only itself vouches for, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    file, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
         "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", file],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return file, key


@pytest.fixture
def https(certificate: tuple[Path, Path]) -> Iterator[str]:
    """The address of a server with that certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with serving(context) as url:
        yield url


class serving:
    """`with serving(tls) as url:`; `connections` are those of the clients so far."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.connections: set[Any] = set()
        handler = type("Kept", (Handler,), {"connections": self.connections})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> str:
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self.url

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.socket.close()
        self._thread.join()


def completion(url: str) -> bool:
    return no_completion(LlamaCppServer(url, "m"), 5) == ""


ASKING: dict[str, Callable[[str], Any]] = {
    "control": lambda url: Control(url, {}).json("/props", {"tokens": [int]}),
    "completion": completion,
    "tokenizer": lambda url: tokenizer.find(url, "m"),
    "clock": http_date_offset,
    "probe": lambda url: probe(url, "m", items=2),
}


@pytest.mark.parametrize("who", ASKING)
def test_a_certificate_authority_of_ones_own_is_trusted_by_all(
    who: str, https: str, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nonexistent")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    try:
        assert not ASKING[who](https)
    except requests.RequestException as error:
        assert "certificate" in str(error)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    assert ASKING[who](https)


@pytest.mark.parametrize("who", ASKING)
def test_no_proxy_of_the_environment_is_taken(who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with serving() as url:
        assert ASKING[who](url)


@pytest.mark.parametrize(("close", "connections"), [(False, 1), (True, 2)])
def test_connections_are_kept_unless_somebody_wants_them_closed(close: bool, connections: int) -> None:
    server = serving()
    with server as url, session({"X": "y"}, close=close) as made:
        assert made.get(url).request.headers["X"] == "y"
        made.get(url)
    assert len(server.connections) == connections


def test_a_probe_whose_answer_has_another_form_is_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as url:
        monkeypatch.setitem(ANSWER, "choices", [{"text": "3"}])
        with pytest.raises(
            requests.RequestException, match=r"^/v1/chat/completions: answer\.choices\[0\] has no 'message'$"
        ):
            probe(url, "m", items=2)
        monkeypatch.setitem(ANSWER, "choices", [])
        assert probe(url, "m", items=2)["unparsed"] == 2
