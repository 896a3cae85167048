"""What most load generators do: aiohttp, line by line.

Without it nobody sees what reading behind somebody else's buffers costs. aiohttp comes with mlflow, no requirement of
ours asks for it.
"""

from __future__ import annotations

import time
from array import array

import orjson

try:
    import aiohttp
except ImportError as error:
    raise SystemExit("this bench compares with aiohttp, which is not installed: pip install aiohttp") from error


class Reader:
    """One client slot."""

    session: aiohttp.ClientSession | None = None

    def __init__(self, host: str, port: int) -> None:
        self._url = f"http://{host}:{port}/v1/chat/completions"

    async def ask(self, body: bytes) -> tuple[float, array]:
        """Send the body of a chat request; when it was sent, and when its chunks came."""
        if Reader.session is None:
            Reader.session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
            )
        times = []
        sent_s = time.monotonic()
        async with Reader.session.post(self._url, data=body) as response:
            async for line in response.content:
                now = time.monotonic()
                if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                    continue
                choices = orjson.loads(line[6:])["choices"]
                if choices and choices[0]["delta"].get("content"):
                    times.append(now)
        return sent_s, array("d", times)
