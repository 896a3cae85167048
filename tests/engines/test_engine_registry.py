"""Engines are found by name, and what base promises to all of them holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lab import engines
from lab.engines import base
from lab.errors import InputError
from lab.secrets import redacted

ROOT = Path(__file__).parents[2]


def test_an_engine_is_found_by_its_name() -> None:
    assert engines.get("llamacpp").name == "llamacpp"
    assert "llamacpp" in engines.names()


def test_an_unknown_engine_gets_a_suggestion() -> None:
    with pytest.raises(InputError, match="unknown engine 'llama_cpp'; did you mean 'llamacpp'"):
        engines.get("llama_cpp")


def test_a_name_cannot_be_taken_twice() -> None:
    with pytest.raises(ValueError, match="llamacpp"):
        base.register(type(engines.get("llamacpp")))


def test_importing_the_package_imports_no_engine() -> None:
    code = "import sys, lab.engines as e; print([m for m in sys.modules if m.startswith(e.__name__ + '.')])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_secrets_are_removed_and_ordinary_values_kept() -> None:
    given = {"HF_TOKEN": "x", "api_keys": ["x"], "AWS_SECRET_ACCESS_KEY": "x", "OMP_WAIT_POLICY": "passive"}
    kept = redacted({**given, "max_tokens": 4, "hf_token": ""})
    assert kept["OMP_WAIT_POLICY"] == "passive"
    assert (kept["max_tokens"], kept["hf_token"]) == (4, "")
    assert {kept[key] for key in ("HF_TOKEN", "api_keys", "AWS_SECRET_ACCESS_KEY")} == {"<removed>"}
