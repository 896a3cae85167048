"""Which Python and which files serve an arm is known before it starts, and a patch makes another build."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lab.campaign import Arm
from lab.engines import _fingerprint, _runtime
from lab.engines._runtime import Packaged
from lab.errors import InputError
from tests.builders import control_arm

PACKAGED = Packaged("vllm", "oddly_named", ("oddly-named", "pytest"), ("pluggy", "not-there"), "LAB_VLLM_DIR")


@pytest.fixture(autouse=True)
def no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAB_VLLM_DIR", raising=False)


def arm(env: dict[str, str] | None = None, **runtime: str) -> Arm:
    return control_arm(env=env or {}).model_copy(update={"runtime": runtime})


def source(folder: Path, text: str = "x = 1") -> Path:
    """A folder to import from, with the package in it."""
    package = folder / "oddly_named"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(text)
    return folder


def test_a_patch_makes_another_build_and_a_copy_does_not(tmp_path: Path) -> None:
    stock, copy, patched = (source(tmp_path / name) for name in ("stock", "copy", "patched"))
    (patched / "oddly_named" / "__init__.py").write_text("x = 2")
    builds = [_runtime.build_of(arm(path=str(folder)), PACKAGED) for folder in (stock, copy, patched)]
    assert builds[0] == builds[1] != builds[2]
    assert builds[0].startswith("vllm ")
    assert ", pluggy " in builds[0]
    assert "not-there" not in builds[0]


def test_compiled_python_is_no_part_of_a_build(tmp_path: Path) -> None:
    folder = source(tmp_path) / "oddly_named"
    before = _fingerprint.digest_of([folder])
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "a.pyc").write_bytes(b"1")
    assert _fingerprint.digest_of([folder]) == before
    (folder / "kernel.so").write_bytes(b"1")
    assert _fingerprint.digest_of([folder]) != before


@pytest.mark.parametrize("at", [0, -1])
def test_a_large_library_is_told_by_its_ends(tmp_path: Path, at: int) -> None:
    path = tmp_path / "lib.so"
    content = bytearray(_fingerprint.WHOLE_BYTES + 1)
    path.write_bytes(content)
    before = _fingerprint.content_of(path)
    content[at] = 1
    path.write_bytes(content)
    assert _fingerprint.content_of(path) != before


def test_an_engine_that_is_not_there_is_bad_input() -> None:
    with pytest.raises(InputError, match=r"arm 'control': .* has no oddly_named; set runtime: \{python: …\}"):
        _runtime.build_of(arm(), PACKAGED)


def test_the_python_is_the_one_named_else_that_of_the_engines_folder_else_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "venv/bin/python"
    own.parent.mkdir(parents=True)
    own.symlink_to(sys.executable)
    assert _runtime.python_of(arm(), PACKAGED) == sys.executable
    monkeypatch.setenv("LAB_VLLM_DIR", str(tmp_path))
    assert _runtime.python_of(arm(), PACKAGED) == str(own), "the link of a virtual environment is what makes it one"
    assert _runtime.python_of(arm(python="$LAB_VLLM_DIR/venv/bin/python"), PACKAGED) == str(own)
    assert _runtime.python_of(arm(python=sys.executable), PACKAGED) == sys.executable


@pytest.mark.parametrize(
    ("runtime", "message"),
    [
        ({"python": "/no/such/python"}, "runtime.python: /no/such/python is not an executable file"),
        ({"python": "$NOT_SET_AT_ALL/python"}, "runtime.python: $NOT_SET_AT_ALL is not set"),
        ({"image": "vllm:latest"}, "runtime.image: the lab starts no containers"),
        ({"pyton": "x"}, "runtime 'pyton' is not for vllm; known: python, path"),
    ],
)
def test_a_runtime_that_cannot_serve_is_bad_input(runtime: dict[str, str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        _runtime.python_of(arm(**runtime), PACKAGED)
    assert message in str(caught.value)


def test_a_path_that_is_no_folder_is_bad_input() -> None:
    with pytest.raises(InputError, match=r"runtime\.path: /no/such/folder is not a folder"):
        _runtime.path_of(arm(path="/no/such/folder"))


def test_folders_of_the_runtime_come_before_those_of_the_environment(tmp_path: Path) -> None:
    given = arm(env={"PYTHONPATH": "/stubs", "A": "arm"}, path=str(tmp_path))
    env = _runtime.environment(given, sys.executable, {"A": "needed", "B": "needed"})
    assert env["PYTHONPATH"] == f"{tmp_path}:/stubs"
    assert (env["A"], env["B"]) == ("arm", "needed")
    assert env["PATH"].startswith(f"{Path(sys.executable).parent}:")


def test_the_shell_does_not_steer_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    for name in ("NCCL_ALGO", "VLLM_USE_V2_MODEL_RUNNER", "PYTHONPATH", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "shell")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    env = _runtime.environment(arm(env={"NCCL_ALGO": "Ring"}), sys.executable, {})
    assert (env["NCCL_ALGO"], env["CUDA_VISIBLE_DEVICES"]) == ("Ring", "1")
    assert not {"VLLM_USE_V2_MODEL_RUNNER", "PYTHONPATH", "OMP_NUM_THREADS", "FORCE_COLOR"} & env.keys()
    assert env["NO_COLOR"] == "1"
