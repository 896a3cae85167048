"""Scenarios in which a server does not come up, live or end as it should.

Without them one that answers its health check and nothing else is measured and believed.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from lab.audit import FINDING, INVALID, WARNING
from lab.audit.lifecycle import BURN_IN
from tests.golden.cards import NORMAL, cards
from tests.golden.scenario import Scenario
from tests.golden.stage import Play

GIB = 1024**3
PORT = 20_000 + os.getpid() % 10_000
"""Below the ports that connections get, and another one in each test process."""


@contextmanager
def _leftover() -> Iterator[None]:
    """A process that outlived an earlier launch still listens."""
    with socket.create_server(("127.0.0.1", PORT)):
        yield


DIES_AT_START = Play(flags={"dialect": "llamacpp"}, treatment={"faults.exit_with_oom_log": True})
DIES_UNDER_LOAD = Play(flags={"dialect": "llamacpp"}, treatment={"faults.crash_at_s": 20.0})

SCENARIOS = [
    Scenario(
        code="sweep-cost",
        severity=WARNING,
        fires=Play(flags={"extra_start_s": 300.0}, limits={"start_seconds": 900}),
        silent=Play(flags={"extra_start_s": 20.0}, limits={"start_seconds": 900}),
    ),
    Scenario(
        code="hang",
        severity=WARNING,
        fires=Play(flags={"faults.stall_every": 100}, limits={"drain_seconds": 200}),
        # A pause of four seconds, in which all streams are silent for less than the limit.
        silent=Play(flags={"compile_at_s": 1.0, "compile_s": 4.0}, limits={"drain_seconds": 200}),
        also=frozenset({"failed-requests", "no-steady-window"}),  # a client that waits for the limit sends nothing
    ),
    Scenario(
        code="false-ready",
        severity=INVALID,
        fires=Play(flags={"dialect": "sglang", "faults.false_ready": True}, limits={"start_seconds": 5}),
        # It fails as well, and never claimed to be ready.
        silent=Play(flags={"dialect": "sglang", "extra_start_s": 900.0}, limits={"start_seconds": 5}),
    ),
    Scenario(
        code="oom-stops-sweep",
        severity=WARNING,
        fires=DIES_AT_START,
        silent=DIES_UNDER_LOAD,
        besides=frozenset({"launch-died"}),
    ),
    Scenario(
        code="launch-died",
        severity=FINDING,
        fires=DIES_UNDER_LOAD,
        silent=DIES_AT_START,
        besides=frozenset({"oom-stops-sweep"}),
    ),
    Scenario(
        code="first-launch",
        severity=FINDING,
        fires=Play(roles={0: BURN_IN}),
        silent=Play(),
    ),
    Scenario(
        code="orphan-process",
        severity=INVALID,
        fires=Play(flags={"port": PORT}, client=_leftover),
        silent=Play(flags={"port": PORT}),
        case="port",
    ),
    Scenario(
        code="orphan-process",
        severity=INVALID,
        fires=Play(client=cards(NORMAL, used_bytes=40 * GIB)),
        # What a driver and its contexts take.
        silent=Play(client=cards(NORMAL, used_bytes=GIB)),
        case="GPU memory",
    ),
]
