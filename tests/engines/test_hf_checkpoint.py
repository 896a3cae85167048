"""A Hugging Face checkpoint is told by what it holds, wherever it lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.engines import _hf_checkpoint
from lab.errors import InputError
from tests.engines import fake_package


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


def refused(name: str, base: Path) -> str:
    with pytest.raises(InputError) as caught:
        _hf_checkpoint.located(name, base)
    return str(caught.value)


def fetched(hub: Path, name: str) -> Path:
    """A model in the hub's cache, its weights behind a link named by their digest."""
    place = hub / f"models--{name.replace('/', '--')}"
    snapshot = fake_package.model(place / "snapshots" / "abc")
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("abc\n")
    (place / "blobs").mkdir()
    (place / "blobs" / ("0" * 64)).write_bytes(b"1234")
    (snapshot / "model.safetensors").symlink_to(place / "blobs" / ("0" * 64))
    return snapshot


def test_a_folder_is_found_from_the_campaigns_and_by_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fake_package.model(tmp_path / "models" / "tiny")
    monkeypatch.setenv("MODELS", str(tmp_path / "models"))
    assert _hf_checkpoint.located("models/tiny", tmp_path) == str(folder)
    assert _hf_checkpoint.located("$MODELS/tiny", Path("/")) == str(folder)
    assert _hf_checkpoint.located("${MODELS}/tiny", Path("/")) == str(folder)


def test_what_is_no_checkpoint_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.gguf").touch()
    assert "there is no config.json in it" in refused("empty", tmp_path)
    assert "is a file; name a folder with config.json" in refused("a.gguf", tmp_path)
    assert "no such folder" in refused("./nowhere", tmp_path)
    assert "$NOT_SET_AT_ALL is not set" in refused("$NOT_SET_AT_ALL/tiny", tmp_path)
    assert "neither a model of the catalogue" in refused("nobody/Unheard-Of-7B", tmp_path)


def test_weights_and_configuration_make_the_digest(tmp_path: Path) -> None:
    folder = fake_package.model(tmp_path / "tiny")
    bare, model = _hf_checkpoint.describe(str(folder))
    assert (bare.bytes, bare.experts, bare.architecture, model.layers) == (0, None, "llama", 2)
    (folder / "model-1.safetensors").write_bytes(b"12345")
    (folder / "model-2.safetensors").write_bytes(b"123")
    weighed, _ = _hf_checkpoint.describe(str(folder))
    assert (weighed.bytes, weighed.sha256 == bare.sha256) == (8, False)
    (folder / "model-2.safetensors").write_bytes(b"124")
    assert _hf_checkpoint.describe(str(folder))[0].sha256 != weighed.sha256
    (folder / "README.md").write_text("no part of it")
    changed, _ = _hf_checkpoint.describe(str(folder))
    (folder / "config.json").write_text(fake_package.CONFIG.replace("bfloat16", "float16"))
    assert _hf_checkpoint.describe(str(folder))[0].sha256 != changed.sha256


def test_a_fetched_model_is_its_snapshot_and_is_not_read_again(tmp_path: Path) -> None:
    snapshot = fetched(tmp_path / "hub", "owner/Tiny")
    assert _hf_checkpoint.located("owner/Tiny", tmp_path) == str(snapshot)
    assert _hf_checkpoint.label(str(snapshot)) == "Tiny"
    assert _hf_checkpoint._sha256(snapshot / "model.safetensors") == "0" * 64
    assert _hf_checkpoint.describe(str(snapshot))[0].bytes == 4


def test_a_model_that_is_not_here_is_described_by_the_catalogue(tmp_path: Path) -> None:
    from lab.roofline import model_catalogue

    name = f"owner/{model_catalogue.names()[0]}"
    assert _hf_checkpoint.located(name, tmp_path) == name
    checkpoint, model = _hf_checkpoint.describe(name)
    assert checkpoint.bytes == model.weight_bytes > 0
    assert _hf_checkpoint.label(name) == name.partition("/")[2]
