"""Requests to a server's control endpoints: described state, metrics, health.

Without one door each reader would forget a different case: a proxy from the environment, a kept connection that the
server has dropped, a key that has to go along and must never be written down.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import requests

TIMEOUT_SECONDS = 10.0  # a control answer waits for the step being computed


class Control:
    """The control endpoints below one base URL; `headers` go along with every request."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float = TIMEOUT_SECONDS) -> None:
        self.url = url
        self._headers = headers
        self._timeout = timeout

    def get(self, path: str) -> requests.Response:
        """The answer, whatever its status; raises requests.RequestException without one.

        Redirects are not followed: the load would not follow them either.
        """
        with session(self._headers) as made:
            return made.get(self.url + path, timeout=self._timeout, allow_redirects=False)

    def text(self, path: str) -> str:
        """The body; raises requests.RequestException without an answer of status 200."""
        answer = self.get(path)
        answer.raise_for_status()
        return answer.text

    def json(self, path: str) -> Any:
        """The body as JSON; raises requests.RequestException without one of status 200."""
        answer = self.get(path)
        answer.raise_for_status()
        return answer.json()

    def offered(self, *paths: str) -> tuple[Any, str]:
        """The first of these that the server offers, as JSON, and its path; (None, "") when it offers none.

        Not offered: status 404, 405 or 501. Raises requests.RequestException for any other failure.
        """
        for path in paths:
            answer = self.get(path)
            if answer.status_code not in (404, 405, 501):
                answer.raise_for_status()
                return answer.json(), path
        return None, ""


def session(headers: Mapping[str, str] | None = None) -> requests.Session:
    """A session without proxies and without kept connections (servers drop idle ones after 5 s).

    A certificate authority of one's own is named in SSL_CERT_FILE, as for all of Python.
    """
    made = requests.Session()
    made.trust_env = False
    made.verify = os.environ.get("SSL_CERT_FILE") or True
    made.headers.update(headers or {})
    made.headers["Connection"] = "close"
    return made
