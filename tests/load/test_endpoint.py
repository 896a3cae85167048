"""Addresses and headers."""

from __future__ import annotations

import base64

import pytest

from lab.errors import InputError
from lab.load.endpoint import Endpoint
from lab.load.events import Fault


@pytest.mark.parametrize("url", ["http://host:1", "http://host:1/", "http://host:1/v1", "http://host:1/v1/"])
def test_url_with_or_without_v1_reaches_the_same_path(url: str):
    assert Endpoint(url).payload({}).startswith(b"POST /v1/chat/completions HTTP/1.1\r\nHost: host:1\r\n")


def test_path_of_the_api_lies_below_the_path_of_the_server():
    assert Endpoint("http://host/some/where/v1", "generate").payload({}).startswith(b"POST /some/where/generate ")


def test_https_is_spoken_on_its_own_port():
    endpoint = Endpoint("https://example.org")
    assert (endpoint.tls is not None, endpoint.port) == (True, 443)


def test_given_header_takes_the_place_of_the_usual_one():
    payload = Endpoint("http://host", headers={"accept": "*/*", "X-Key": "k"}).payload({})
    assert payload.lower().count(b"\r\naccept:") == 1
    assert b"accept: */*\r\n" in payload
    assert b"X-Key: k\r\n" in payload


@pytest.mark.parametrize("headers", [{"X": "a\r\nY: b"}, {"X\n": "a"}, {"A: B": "c"}, {"": "a"}])
def test_header_that_would_be_two_is_refused(headers: dict[str, str]):
    with pytest.raises(InputError, match="headers"):
        Endpoint("http://host", headers=headers)


def test_fault_is_presentable_without_secrets_in_any_form_and_short():
    endpoint = Endpoint("http://host", headers={"Authorization": "Bearer sk-1234567890"})
    coded = base64.b64encode(b"Authorization: Bearer sk-1234567890").decode()
    for form in ("sk-1234567890", "sk%2D1234567890", "sk\\u002d1234567890", coded):
        for before in (0, 290):
            said = endpoint.presentable(Fault("http-4xx", "x" * before + form + "y" * 400))
            assert (said.kind, len(said.text)) == ("http-4xx", 300)
            assert "1234" not in said.text
            assert "c2st" not in said.text


def test_fault_that_is_presentable_is_left_as_it_is():
    fault = Fault("empty", "the answer finished without a token")
    assert Endpoint("http://host").presentable(fault) is fault


@pytest.mark.parametrize("url", ["host:8000", "ftp://host", "http://", "http://host:port"])
def test_address_that_is_none_is_refused(url: str):
    with pytest.raises(InputError, match="server_url"):
        Endpoint(url)
