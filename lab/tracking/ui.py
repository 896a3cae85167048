"""Serve the published results to a browser, for as long as somebody looks.

Without it everyone starts MLflow by hand, each with another database, on a page that opens at the wrong place.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import requests

from lab.errors import LabError
from lab.tracking import pages, store

ALIVE_CHECK_SECONDS = 0.5


def ui(results: Path, port: int = 5000, host: str = store.LOOPBACK) -> None:
    """Serve the project's MLflow in the foreground until interrupted, and print links to the verdicts.

    With MLFLOW_TRACKING_URI set, or a server already running, only the links are printed. Call it from the main
    thread. Raises InputError when the port is taken, LabError when the server does not start or ends by itself.
    """
    foreign = os.environ.get("MLFLOW_TRACKING_URI")
    if foreign:
        print(f"MLFLOW_TRACKING_URI is set: {store.shown(foreign)}", flush=True)
        return
    folder = results / "mlflow"
    with store.only_writer(folder):
        url = store.running(folder)
        if url:
            _print_links(url)
            return
        store.require_free(host, port)
        store.prepare(folder)
        process, url = store.start(folder, port, host)
        try:
            store.wait_healthy(process, url, folder)
            store.record(folder, process, url)
        except BaseException:
            process.stop()
            raise
    try:
        with _interruption() as interrupted:
            _print_links(url)
            while not interrupted:
                time.sleep(ALIVE_CHECK_SECONDS)
                if not process.alive():
                    raise LabError(f"the MLflow server ended by itself; see {folder / 'server.log'}")
    finally:
        (folder / "server.json").unlink(missing_ok=True)
        process.stop()


@contextlib.contextmanager
def _interruption() -> Iterator[list[int]]:
    """A list that Ctrl-C and SIGTERM fill: a KeyboardInterrupt that falls into a finalizer is lost, and an Event set by
    a handler waits for ever when the signal comes while the main thread holds the event's own lock."""
    received: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda signum, _: received.append(signum)) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print_links(url: str) -> None:
    print(f"MLflow serves the results at {url}; Ctrl-C ends it", flush=True)
    answer = requests.post(
        f"{url}/api/2.0/mlflow/experiments/search",
        json={"max_results": 100, "filter": "name LIKE 'levers-%'", "order_by": ["last_update_time DESC"]},
        timeout=store.PROBE_SECONDS,
    )
    experiments = answer.json().get("experiments", []) if answer.ok else []
    if not experiments:
        print("nothing is published yet: run `lab publish`", flush=True)
    for experiment in experiments:
        number = experiment["experiment_id"]
        print(f"{experiment['name']}", flush=True)
        print(f"  verdicts  {pages.verdicts_link(url, number)}", flush=True)
        print(f"  or        {pages.filtered_link(url, number)}", flush=True)
        print(f"  all runs  {pages.runs_link(url, number)}", flush=True)
