"""A TCP proxy that stretches every answer in time: a server that is slower by a known share.

Without a known truth on a real engine, nobody can show that the lab's verdicts on one are right.

`python -m tests.bench.stretching_proxy HOST PORT PCT` prints `LISTEN http://127.0.0.1:PORT`. What the server sends t
seconds after the first bytes of an answer is passed on t · (1 + PCT/100) seconds after them; what the client sends is
passed on at once. It ends with its standard input.
"""

from __future__ import annotations

import asyncio
import sys

BLOCK = 65_536


async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note) -> None:
    """Pass bytes on at once; `note` is called for each block."""
    while block := await reader.read(BLOCK):
        note()
        writer.write(block)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def stretch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, began: list[float], share: float) -> None:
    """Pass answers on, later the further they are from their beginning; `began` is emptied by a new request."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            due_s, block = await waiting.get()
            await asyncio.sleep(due_s - loop.time())
            if not block:
                break
            writer.write(block)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    delivery = asyncio.create_task(deliver())
    while True:
        block = await reader.read(BLOCK)
        now_s = loop.time()
        if not began:
            began.append(now_s)
        waiting.put_nowait((now_s + share * (now_s - began[0]), block))
        if not block:
            break
    await delivery


async def serve(host: str, port: int, share: float) -> None:
    """Until standard input ends."""

    async def connected(client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        began: list[float] = []
        try:
            server, to_server = await asyncio.open_connection(host, port)
            await asyncio.gather(forward(client, to_server, began.clear), stretch(server, to_client, began, share))
        except OSError:
            pass
        finally:
            to_client.close()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(f"LISTEN http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", flush=True)
    async with listening:
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    try:
        asyncio.run(serve(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) / 100))
    except KeyboardInterrupt:
        sys.exit(130)
