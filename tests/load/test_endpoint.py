"""Addresses and headers."""

from __future__ import annotations

import pytest

from lab.errors import InputError
from lab.load.endpoint import Endpoint


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


@pytest.mark.parametrize("url", ["host:8000", "ftp://host", "http://", "http://host:port"])
def test_address_that_is_none_is_refused(url: str):
    with pytest.raises(InputError, match="server_url"):
        Endpoint(url)
