"""An arm of a packaged engine is checked by the engine's own parser, started, waited for and ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import engines, levers
from lab.campaign import PROJECT, Arm, Campaign, Limits
from lab.engines.base import ArmFailed, Engine
from lab.errors import InputError
from lab.hosts import marked_processes
from tests.engines import fake_package

Make = Callable[..., Arm]
LIMITS = Limits(start_seconds=60)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "cache"))
    for name in ("LAB_VLLM_DIR", "LAB_SGLANG_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def arm(engine: str = "vllm", env: dict[str, str] | None = None, **flags: Any) -> Arm:
        source = fake_package.package(tmp_path / "src", engine)
        return Arm(
            name="t",
            engine=engine,
            checkpoint=str(fake_package.model(tmp_path / "tiny")),
            flags=flags,
            env=env or {},
            runtime={"path": str(source)},
        )

    return arm


@pytest.fixture
def marker(tmp_path: Path) -> Iterator[str]:
    name = f"tests/{tmp_path.name}/{id(tmp_path)}"
    yield name
    assert marked_processes(name, exact=True) == []


def refused(arm: Arm) -> str:
    with pytest.raises(InputError) as caught:
        engines.get(arm.engine).check(arm)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_server_starts_completes_and_ends(engine: str, make: Make, marker: str, tmp_path: Path) -> None:
    arm = make(engine, max_num_seqs=4, enable_prefix_caching=False)
    found: Engine = engines.get(engine)
    found.check(arm)
    with found.launch(arm, tmp_path / "launch", LIMITS, marker) as server:
        assert (server.model, server.alive(), server.attached) == ("tiny", True, False)
        assert server.ready_seconds and server.url.startswith("http://127.0.0.1:")
        assert server.reset_cache()
        words = " ".join(server.argv)
    assert "--max-num-seqs 4 --no-enable-prefix-caching" in words
    assert f"{tmp_path}/tiny" in words
    assert server.exit is not None
    assert not server.alive()


def test_only_the_arm_steers_the_server(
    make: Make, marker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_STRAY", "from the shell")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    arm = make(env={"OMP_NUM_THREADS": "1"})
    with engines.get("vllm").launch(arm, tmp_path / "launch", LIMITS, marker) as server:
        line = next(line for line in server.log_text().splitlines() if line.startswith("ENVIRONMENT"))
    said = json.loads(line.removeprefix("ENVIRONMENT "))
    assert arm.digest in said.pop("VLLM_CACHE_ROOT"), "an arm does not begin with what another one compiled"
    assert said == {"VLLM_STRAY": None, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def test_another_port_is_tried_where_one_was_taken(make: Make, marker: str, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("2")
    arm = make(env={"FAKE_TAKEN_PORTS_FILE": str(taken)})
    with engines.get("vllm").launch(arm, tmp_path / "launch", LIMITS, marker) as server:
        assert server.alive()
    taken.write_text("99")
    with pytest.raises(ArmFailed, match=r"port-in-use.*Address already in use"):
        engines.get("vllm").launch(arm, tmp_path / "launch", LIMITS, marker)
    assert taken.read_text() == "96"


def test_a_server_that_dies_at_its_first_request_has_not_started(make: Make, marker: str, tmp_path: Path) -> None:
    arm = make(env={"FAKE_DIES_WHEN_ASKED": "1"})
    with pytest.raises(ArmFailed) as caught:
        engines.get("vllm").launch(arm, tmp_path / "launch", LIMITS, marker)
    assert (caught.value.failure.kind, "NCCL error: unhandled" in caught.value.failure.reason) == ("nccl", True)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"max_num_seq": 4}, "arm 't': flag 'max_num_seq' is unknown to vllm; did you mean 'max_num_seqs'?"),
        ({"max-num-seqs": 4}, "flag 'max-num-seqs' is spelt 'max_num_seqs' in an arm"),
        ({"cuda_graph_sizes": [1]}, "flag 'cuda_graph_sizes' is called 'cudagraph_capture_sizes' in vllm"),
        ({"speculative_model": "x"}, "in vllm: write speculative_config.model"),
        ({"port": 1}, "flag 'port' is refused: the lab's servers listen on 127.0.0.1 only"),
        ({"kv_cache_dtype": "int3"}, "flag kv_cache_dtype: 'int3' is none of auto, fp8"),
    ],
)
def test_a_flag_that_cannot_work_is_refused_in_one_line(make: Make, flags: dict[str, Any], message: str) -> None:
    assert message in refused(make(**flags))


def test_a_refused_flag_is_refused_under_its_other_name(make: Make) -> None:
    assert "flag 'model' is refused: name the model in 'checkpoint'" in refused(make("sglang", model="x"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("VLLM_ATTENTION_BACKEND", "variable VLLM_ATTENTION_BACKEND is gone in vllm; use the flag attention_backend"),
        ("VLLM_NOPE", "variable VLLM_NOPE is unknown to vllm, which would only warn; leave it out"),
        ("VLLM_SERVER_DEV_MODE", "variable VLLM_SERVER_DEV_MODE is refused: the lab reads /server_info"),
    ],
)
def test_a_variable_that_does_nothing_is_refused(make: Make, name: str, message: str) -> None:
    assert message in refused(make(env={name: "1"}))


def test_a_variable_that_the_build_reads_passes(make: Make) -> None:
    engines.get("vllm").check(make(env={"VLLM_CPU_OMP_THREADS_BIND": "0", "NCCL_PROTO": "LL"}))


def test_sglangs_log_stays_readable(make: Make) -> None:
    assert "the lab reads the log in its usual form" in refused(make("sglang", {"SGLANG_LOGGING_CONFIG_PATH": "x"}))


def test_a_parser_is_asked_once_a_build(make: Make, tmp_path: Path) -> None:
    arm = make(max_num_seqs=4)
    engines.get("vllm").check(arm)
    notes = list((tmp_path / "cache" / "options").iterdir())
    engines.get("vllm").check(arm)
    assert list((tmp_path / "cache" / "options").iterdir()) == notes
    assert len(notes) == 1


def test_an_engine_that_is_not_installed_is_said_with_what_to_do(make: Make) -> None:
    said = refused(make().model_copy(update={"runtime": {}}))
    assert "has no vllm; set runtime: {python: …} to one that has, or $LAB_VLLM_DIR to a folder" in said


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_what_the_shipped_campaign_changes_can_be_proven(engine: str) -> None:
    campaign = Campaign.load(PROJECT / "experiments" / f"{engine}-cpu.yaml")
    found, control = engines.get(engine), campaign.control
    arms = [arm for lever in levers.resolve(campaign) for arm in lever.treatments(control, found)]
    assert campaign.server.engine == engine
    assert len(arms) >= 4
    for arm in arms:
        changed = {flag for flag, value in arm.flags.items() if control.flags.get(flag) != value}
        assert changed and changed <= found.shown_by.keys()
