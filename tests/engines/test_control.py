"""Control answers whose errors repeat no secret, and whose numbers are numbers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import requests

from lab.engines._control import Control
from tests.engines import web

KEY = "sk-SECRET-1234567890"
HEADERS = {"Authorization": f"Bearer {KEY}"}


@contextmanager
def saying(wire: bytes) -> Iterator[str]:
    """The URL of a server that answers every connection with these bytes."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        try:
            while True:
                connection, _ = listening.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(wire)
        except OSError:  # no longer listening
            return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(5)


@pytest.mark.parametrize(
    ("wire", "kind"),
    [
        (f"HTTP/1.1 500 bad {KEY}\r\nContent-Length: 0\r\n\r\n".encode(), requests.HTTPError),
        (f"Bearer {KEY} is not allowed\r\n\r\n".encode(), requests.ConnectionError),
    ],
    ids=["reason", "no HTTP"],
)
@pytest.mark.parametrize("ask", ["text", "json", "offered"])
def test_an_error_that_quotes_the_key_is_raised_without_it(wire: bytes, kind: type[Exception], ask: str) -> None:
    with saying(wire) as url, pytest.raises(kind) as raised:
        control = Control(url, HEADERS)
        control.offered({"/x": object}) if ask == "offered" else getattr(control, ask)("/x")
    assert "SECRET" not in f"{raised.value} {raised.value!r} {raised.value.args}"
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


def test_an_error_without_a_secret_is_left_as_it_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(requests.ConnectionError) as raised:
        Control(f"http://127.0.0.1:{port}", HEADERS).get("/x")
    assert raised.value.args[0].reason is not None


def test_what_a_server_said_is_concealed_before_it_is_cut() -> None:
    assert Control("http://host", HEADERS).concealed(f"key {KEY}, and more", 16) == "key <removed>, a"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_not_finite_is_null(number: str) -> None:
    with web.Web({"/x": f'{{"a": {number}, "b": 1.5}}'}) as server:
        control = Control(server.url, {})
        assert control.json("/x") == {"a": None, "b": 1.5}
        with pytest.raises(requests.RequestException, match=r"answer\.a is no number but null"):
            control.json("/x", {"a": float})
