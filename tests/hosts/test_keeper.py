"""A kept process ends with its owner, its keeper or on request, and takes everything it started along."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from lab.errors import InputError
from lab.hosts import LocalHost, Process, environment_of, marked_processes

ROOT = Path(__file__).parents[2]
SLEEP = [sys.executable, "-c", "import time; time.sleep(120)"]
IGNORES_SIGTERM = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\n"
DAEMON = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(120)\nprint('up', flush=True)\n"


@pytest.fixture
def marker() -> Iterator[str]:
    """A marker of this test's own; whatever still carries it at the end is ended by pid."""
    name = f"test-{uuid.uuid4().hex}"
    yield name
    for pid in marked_processes(name):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def start(code: str | list[str], marker: str, tmp_path: Path, grace_seconds: float = 5.0) -> Process:
    argv = code if isinstance(code, list) else [sys.executable, "-c", code]
    return LocalHost().start(argv, dict(os.environ), tmp_path / "log", marker, grace_seconds=grace_seconds)


def until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def until_up(tmp_path: Path) -> None:
    assert until(lambda: (tmp_path / "log").exists() and "up" in (tmp_path / "log").read_text())


def owner(script: str) -> subprocess.Popen[str]:
    """Another process that owns kept processes; it prints a line once they are up."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n" + textwrap.dedent(script)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as output:
        assert output.readline()
    return process


def keeper_of(process: Process) -> psutil.Process:
    parent = psutil.Process(process.pid).parent()
    assert parent is not None
    assert "keeper.py" in " ".join(parent.cmdline())
    return parent


def gone(marker: str) -> bool:
    return not marked_processes(marker)


def test_an_obedient_process_stops_without_force(marker: str, tmp_path: Path) -> None:
    process = start(SLEEP, marker, tmp_path)
    assert process.alive()
    assert process.pid in marked_processes(marker)
    end = process.stop()
    assert (end.code, end.forced) == (-signal.SIGTERM, False)
    assert gone(marker)
    assert process.stop().code == end.code


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace(marker: str, tmp_path: Path) -> None:
    process = start(IGNORES_SIGTERM + "time.sleep(120)", marker, tmp_path)
    until_up(tmp_path)
    end = process.stop(grace=0.3)
    assert (end.code, end.forced) == (-signal.SIGKILL, True)
    assert gone(marker)


def test_exit_codes_and_output_are_passed_on(marker: str, tmp_path: Path) -> None:
    process = start("import sys; print('said'); print('warned', file=sys.stderr); sys.exit(3)", marker, tmp_path)
    assert process.wait(20) == 3
    assert not process.alive()
    assert sorted((tmp_path / "log").read_text().split()) == ["said", "warned"]
    assert not process.stop().forced


def test_a_time_out_of_wait_leaves_the_process_alone(marker: str, tmp_path: Path) -> None:
    process = start(SLEEP, marker, tmp_path)
    assert process.wait(0.05) is None
    assert process.alive()
    process.stop()


def test_a_command_that_does_not_exist_is_bad_input(marker: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"No such file or directory: .no-such-command"):
        start(["no-such-command"], marker, tmp_path)
    with pytest.raises(InputError, match="nowhere"):
        LocalHost().start(SLEEP, {}, None, marker, cwd=tmp_path / "nowhere")
    assert gone(marker)


def test_the_environment_is_exactly_what_was_given(marker: str) -> None:
    process = LocalHost().start(["/bin/sleep", "120"], {"ONLY": "this"}, None, marker)
    assert environment_of(process.pid) == {"ONLY": "this", "LAB_LAUNCH": marker}
    process.stop()


def test_the_child_is_out_of_reach_of_the_terminal(marker: str, tmp_path: Path) -> None:
    process = start(SLEEP, marker, tmp_path)
    assert len({os.getsid(0), os.getsid(process.pid), os.getsid(keeper_of(process).pid)}) == 3
    keeper_of(process).send_signal(signal.SIGINT)
    assert process.wait(0.2) is None
    process.stop()


def test_a_daemonised_grandchild_is_ended_too(marker: str, tmp_path: Path) -> None:
    process = start(DAEMON + "time.sleep(120)", marker, tmp_path)
    until_up(tmp_path)
    assert len(marked_processes(marker)) == 3
    process.stop()
    assert gone(marker)


def test_a_child_that_ends_takes_its_daemons_along(marker: str, tmp_path: Path) -> None:
    process = start(DAEMON, marker, tmp_path)
    assert process.wait(20) == 0
    assert gone(marker)


@pytest.mark.parametrize("code", [IGNORES_SIGTERM + "time.sleep(120)", DAEMON + "time.sleep(120)"])
def test_a_killed_keeper_leaves_nothing(code: str, marker: str, tmp_path: Path) -> None:
    process = start(code, marker, tmp_path)
    until_up(tmp_path)
    keeper_of(process).kill()
    assert process.wait(20) == -signal.SIGKILL
    assert until(lambda: gone(marker))
    assert process.stop().forced


def test_a_killed_keeper_leaves_nothing_even_when_its_owner_does_not_look(marker: str) -> None:
    asleep = owner(f"""
        import time
        from lab.hosts import LocalHost
        process = LocalHost().start(["/bin/sleep", "120"], {{}}, None, {marker!r})
        print(process.pid, flush=True)
        time.sleep(120)
    """)
    (keeper,) = psutil.Process(asleep.pid).children()
    keeper.kill()
    assert until(lambda: gone(marker))
    asleep.kill()
    asleep.wait()


def test_a_stopped_process_still_ends_gracefully(marker: str, tmp_path: Path) -> None:
    process = start(SLEEP, marker, tmp_path)
    os.kill(process.pid, signal.SIGSTOP)
    assert process.alive()
    assert not process.stop().forced


def test_a_keeper_told_to_end_stops_its_child_first(marker: str, tmp_path: Path) -> None:
    process = start(SLEEP, marker, tmp_path)
    keeper_of(process).terminate()
    assert process.wait(20) == -signal.SIGTERM
    assert gone(marker)


LISTENER = """
import os, socket, sys, time
server = socket.create_server(("127.0.0.1", 0))
open(sys.argv[1], "w").write(str(server.getsockname()[1]))
if os.fork() == 0:
    os.setsid()
print("up", flush=True)
time.sleep(120)
"""


def test_a_killed_owner_leaves_no_process_and_no_open_port(marker: str, tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    killed = owner(f"""
        import os, time
        from pathlib import Path
        from lab.hosts import LocalHost
        argv = [sys.executable, "-c", {LISTENER!r}, {str(port_file)!r}]
        process = LocalHost().start(argv, dict(os.environ), Path({str(tmp_path / "log")!r}), {marker!r})
        print(process.pid, flush=True)
        time.sleep(120)
    """)
    until_up(tmp_path)
    port = int(port_file.read_text())
    socket.create_connection(("127.0.0.1", port), timeout=5).close()
    killed.kill()
    killed.wait()
    assert until(lambda: gone(marker))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


@pytest.mark.parametrize(
    "sibling",
    [
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(120)'], close_fds=False).pid",
        "os.fork() or time.sleep(120)",
    ],
    ids=["exec", "fork"],
)
def test_a_sibling_of_the_owner_does_not_keep_the_pipe_open(sibling: str, marker: str) -> None:
    killed = owner(f"""
        import os, subprocess, time
        from lab.hosts import LocalHost
        process = LocalHost().start(["/bin/sleep", "120"], {{}}, None, {marker!r})
        pid = {sibling}
        print(pid, flush=True)
        time.sleep(120)
    """)
    siblings = psutil.Process(killed.pid).children()
    killed.kill()
    killed.wait()
    assert until(lambda: gone(marker))
    for process in siblings:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


NESTED = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from lab.hosts import LocalHost
code = "import signal, sys, time\\n" \\
    "def end(*_):\\n    time.sleep(0.3); open(sys.argv[1], 'w').write('graceful'); sys.exit(0)\\n" \\
    "signal.signal(signal.SIGTERM, end)\\nprint('up', flush=True)\\nwhile True: time.sleep(0.05)"
argv = [sys.executable, "-c", code, sys.argv[2]]
LocalHost().start(argv, dict(os.environ), Path(sys.argv[3]), sys.argv[4], grace_seconds=3)
time.sleep(120)
"""


@pytest.mark.parametrize("how", ["stop", "middle killed", "outer keeper terminated"])
def test_a_keeper_under_a_keeper_stops_its_child_gracefully(how: str, marker: str, tmp_path: Path) -> None:
    note, log = tmp_path / "note", tmp_path / "log"
    argv = [sys.executable, "-c", NESTED, str(ROOT), str(note), str(log), f"{marker}/inner"]
    process = LocalHost().start(argv, dict(os.environ), tmp_path / "outer.log", f"{marker}/outer", grace_seconds=6)
    until_up(tmp_path)
    assert len(marked_processes(marker)) == 4
    assert len(marked_processes(f"{marker}/inner", exact=True)) == 2
    if how == "stop":
        assert not process.stop().forced
    elif how == "middle killed":
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait(20) == -signal.SIGKILL
    else:
        keeper_of(process).terminate()
        assert process.wait(20) is not None
    assert note.read_text() == "graceful"
    assert gone(marker)


def test_markers_of_others_are_not_listed(marker: str, tmp_path: Path) -> None:
    process = start(SLEEP, marker, tmp_path)
    assert marked_processes(f"{marker}-other") == []
    assert marked_processes(marker[:-1], exact=True) == []
    assert process.pid in marked_processes(marker[:-1])
    process.stop()


def test_output_can_be_inherited(marker: str, capfd: pytest.CaptureFixture[str]) -> None:
    argv = [sys.executable, "-c", "print('from the child')"]
    for inherit, expected in ((True, "from the child\n"), (False, "")):
        process = LocalHost().start(argv, dict(os.environ), None, marker, inherit_output=inherit)
        assert process.wait(20) == 0
        assert capfd.readouterr().err == expected
