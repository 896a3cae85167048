"""Run a simulated server: `python -m lab.simulator --truth truth.json`; it prints `LISTEN http://127.0.0.1:PORT`.

Without a program of its own it would share a process, and its time, with whoever measures it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import signal
import subprocess
import sys
from pathlib import Path

import orjson
import uvloop

from lab.errors import InputError
from lab.simulator import VERSION
from lab.simulator.dialects import dialect_of
from lab.simulator.server import SimulatedServer, listen
from lab.simulator.service import Service
from lab.simulator.truth import Truth, described, flat, from_flags, parsed

_FAILED = 1
_ALLOCATIONS_BETWEEN_COLLECTIONS = 50_000


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser("python -m lab.simulator", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--truth", type=Path, help="JSON file with the truth; without one the defaults hold")
    parser.add_argument("--flags", help="JSON object of flags with dotted names, over the file")
    parser.add_argument("--fields", action="store_true", help="list every flag, its default and its meaning")
    parser.add_argument("--port", type=int, default=0, help="over that of the truth; 0: that one")
    parser.add_argument("--launch", type=int, default=0, help="number of this launch: noise between launches")
    parser.add_argument("--out", type=Path, help="folder that receives truth.npz at a clean stop")
    options = parser.parse_args(arguments)
    if options.fields:
        print("\n".join(f"{name} = {default}\n    {text}" for name, default, text in described()))
        return 0
    try:
        truth = _truth(options)
    except InputError as error:
        print(f"BADFLAG {error}", file=sys.stderr)
        return error.exit_code
    return uvloop.run(serve(truth, options.port or truth.port, options.launch, options.out))


def _truth(options: argparse.Namespace) -> Truth:
    document = orjson.loads(options.truth.read_bytes()) if options.truth else {}
    truth = parsed(document)
    if options.flags:
        truth = from_flags({**flat(document), **orjson.loads(options.flags)})
    return truth


async def serve(asked: Truth, port: int, launch: int, out: Path | None) -> int:
    """Start, serve until SIGTERM or SIGINT, write the journal; returns the exit code."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    truth = asked.resolved()
    kind = dialect_of(truth.dialect)
    service = Service(truth, launch, kind.bounds)
    dialect = kind(service)
    dialect.log(f"BUILD lab.simulator {VERSION}")
    if truth.faults.orphan_s:
        idle = f"import time; time.sleep({truth.faults.orphan_s})"
        subprocess.Popen([sys.executable, "-c", idle], start_new_session=True)
    if truth.faults.exit_with_oom_log:
        dialect.log(*dialect.out_of_memory_lines())
        return _FAILED
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), truth.extra_start_s / truth.time_factor or 0.001)
        return 0
    server = SimulatedServer(service, dialect)
    try:
        listener = await listen(server, "127.0.0.1", port)
    except OSError as error:
        dialect.log(f"OSError: [Errno {error.errno}] Address already in use: port {port}")
        return _FAILED
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_BETWEEN_COLLECTIONS)  # a collection is a pause that the truth does not know
    service.begin(loop)
    dialect.log(*dialect.start_lines(url), f"LISTEN {url}")
    await stop.wait()
    listener.close()
    for connection in list(server.connections):
        connection.cut()
    dialect.log(*dialect.stop_lines())
    if out is not None:
        service.save(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
