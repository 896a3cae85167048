"""Requests to a server's control endpoints: described state, metrics, health.

Without one door each reader would forget a different case: a redirect that the load does not follow, a kept connection
that the server has dropped, a key that has to go along and must never be written down, an answer of another form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import requests

from lab.http_session import Shape, content, session
from lab.secrets import concealed, in_headers

TIMEOUT_SECONDS = 10.0  # a control answer waits for the step being computed
_NOT_OFFERED = (404, 405, 501)


class Control:
    """The control endpoints below one base URL; `headers` go along with every request.

    A shape (see `lab.http_session.Shape`) is what a reader relies on in an answer; one of another shape raises
    requests.RequestException, as no answer does. No such error repeats a secret of the headers, which servers quote.
    """

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float = TIMEOUT_SECONDS) -> None:
        self.url = url
        self._headers = headers
        self._timeout = timeout
        self._secrets = in_headers(headers)

    def concealed(self, text: str, most: int | None = None) -> str:
        """What a server said without the secrets of the headers, and then its first `most` characters."""
        return concealed(text, self._secrets, most)

    def get(self, path: str) -> requests.Response:
        """The answer, whatever its status; raises requests.RequestException without one.

        Redirects are not followed: the load would not follow them either.
        """
        with self._discreet(), session(self._headers, close=True) as made:
            return made.get(self.url + path, timeout=self._timeout, allow_redirects=False)

    def post(self, path: str) -> requests.Response:
        """The answer to an empty request, whatever its status; raises requests.RequestException without one."""
        with self._discreet(), session(self._headers, close=True) as made:
            return made.post(self.url + path, timeout=self._timeout, allow_redirects=False)

    def text(self, path: str) -> str:
        """The body; raises requests.RequestException without an answer of status 200."""
        return self._good(path).text

    def json(self, path: str, shape: Shape = object) -> Any:
        """The body as JSON; raises requests.RequestException without one of status 200 and of that shape."""
        return content(self._good(path), path, shape)

    def shown(self, path: str, shape: Shape) -> Any | None:
        """As `json`; None when the status is not 200."""
        answer = self.get(path)
        return content(answer, path, shape) if answer.status_code == requests.codes.ok else None

    def offered(self, shapes: Mapping[str, Shape]) -> tuple[Any, str]:
        """The first of these paths that the server offers, as JSON, and the path; (None, "") when it offers none.

        Not offered: status 404, 405 or 501. Raises requests.RequestException for any other failure.
        """
        for path, shape in shapes.items():
            answer = self.get(path)
            if answer.status_code not in _NOT_OFFERED:
                return content(self._passed(answer), path, shape), path
        return None, ""

    def _good(self, path: str) -> requests.Response:
        return self._passed(self.get(path))

    def _passed(self, answer: requests.Response) -> requests.Response:
        """The answer; raises requests.HTTPError for a status that is none of success."""
        with self._discreet():
            answer.raise_for_status()
        return answer

    @contextmanager
    def _discreet(self) -> Iterator[None]:
        """Errors of the block, of the same kind, without the secrets of the headers."""
        try:
            yield
        except requests.RequestException as error:
            text = self.concealed(str(error))
            if text == str(error):
                raise
            raise type(error)(text, request=error.request, response=error.response) from None
