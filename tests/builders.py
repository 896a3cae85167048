"""Campaign files, records and whole run folders with known effects, written by the lab's own writers.

Without them every test would invent its own idea of a record, and the judgement would be tested against shapes that no
measurement ever has.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

import yaml

from lab.campaign import CONTROL, Arm, Campaign, Limits, Rule
from lab.engines.base import Capabilities, Engine, Failure
from lab.engines.server import Server
from lab.errors import InputError
from lab.files import suggest, write_json, write_text
from lab.plan import Estimate, LeverPlan, dump
from lab.records import CLOSING, MATCHED, OPENING, TREATMENT, Launch, Trial, close_launch, compress_log
from lab.roofline.hardware import Hardware
from lab.roofline.model import Model
from lab.runs import Run
from tests.trial_values import TRIAL

CAMPAIGN: dict[str, Any] = {
    "name": "small",
    "model": {"name": "tiny", "checkpoint": "tiny.gguf"},
    "server": {"engine": "stub", "flags": {"slots": 4}},
    "workloads": {"chat": {"kind": "chat", "output_tokens": 16, "concurrency": [1, 4]}},
    "window": {"warmup_seconds": 1, "seconds": 2, "min_steady_seconds": 1},
    "rule": {"workload": "chat", "concurrency": 4, "passes": {"min": 2, "max": 3}},
    "levers": {"fewer_slots": {"custom": {"title": "Half the slots", "treatment": {"flags": {"slots": 2}}}}},
}
MODEL = Model(
    name="tiny",
    architecture="llama",
    format="Q4_1",
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim_k=16,
    head_dim_v=16,
    vocab=96,
    n_experts=0,
    context_length=512,
    params=2_000_000,
    weight_bytes=1_000_000,
    weight_bytes_per_step=1_000_000,
)
HARDWARE = Hardware("test processor", 1e9, "made up")
# A tenth of it serves the runs: their usual 100 tok/s are 27 % of what it allows, so that nothing is amiss.
RUN_HARDWARE = replace(HARDWARE, memory_bandwidth_bytes_s=1e8)
# Launch noise in percent: small, and of no pattern that an order of launches could follow.
NOISE_PCT = (0.3, -0.4, 0.1, 0.5, -0.2, -0.5, 0.4, -0.1, 0.2, -0.3)


def changed(record: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A deep copy with values replaced by dotted path: `{"server.running": 2.0}`."""
    result = copy.deepcopy(dict(record))
    for path, value in (changes or {}).items():
        *parents, last = path.split(".")
        place = result
        for part in parents:
            place = place[part]
        place[last] = value
    return result


def write_campaign(folder: Path, changes: Mapping[str, Any] | None = None) -> Path:
    """A campaign file in `folder`, with its tiny checkpoint beside it."""
    write_checkpoint(folder / "tiny.gguf")
    path = folder / "small.yaml"
    write_text(path, yaml.safe_dump(changed(CAMPAIGN, changes), sort_keys=False))
    return path


def write_checkpoint(path: Path, experts: int = 0) -> Path:
    """A GGUF of one layer that the lab can read; nothing could serve it."""
    import gguf
    import numpy as np

    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_block_count(1)
    writer.add_embedding_length(32)
    writer.add_context_length(512)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    if experts:
        writer.add_expert_count(experts)
    writer.add_tensor("token_embd.weight", np.zeros((8, 32), dtype=np.float16))
    writer.add_tensor("output.weight", np.zeros((8, 32), dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


class StubEngine(Engine):
    """An engine that knows two flags and never starts anything."""

    name = "stub"
    shown_by: ClassVar[Mapping[str, tuple[str, ...]]] = {"slots": ("n_slots",), "WAIT": ("wait_policy",)}
    flags = ("slots", "threads", "hidden")

    def __init__(self, name: str = "stub", devices: int = 1, collectives: bool = False, **can: Any) -> None:
        self.name = name  # type: ignore[misc]
        self._capabilities = Capabilities(devices=devices, collectives=collectives, **can)

    def capabilities(self) -> Capabilities:
        return self._capabilities

    def check(self, arm: Arm) -> None:
        for flag in arm.flags:
            if flag not in self.flags:
                raise InputError(f"arm '{arm.name}': unknown flag '{flag}'{suggest(flag, self.flags)}")

    def build(self, arm: Arm) -> str:
        return f"stub {arm.runtime.get('release', '1')}"

    def launch(self, arm: Arm, folder: Path, limits: Limits, marker: str) -> Server:
        raise AssertionError("these tests start no server")

    def failure(self, log: str, code: int | None) -> Failure:
        return Failure("crashed", f"ended with code {code}")


def control_arm(**values: Any) -> Arm:
    """The control that the levers' tests change."""
    return Arm(**{"name": CONTROL, "engine": "llamacpp", "checkpoint": "smollm2-135m-q4_1", **values})


def lever_plan(name: str, **values: Any) -> LeverPlan:
    """What a run does about a lever with one treatment."""
    arm = Arm(name=name, lever=name, treatment=f"{name} on", engine="stub", checkpoint="tiny.gguf", flags={"slots": 2})
    return LeverPlan(
        **{"name": name, "notebook": "09_custom", "title": name, "arms": (arm.model_dump(),), **values},
    )


# Further arguments of `RunBuilder.launch` for a server that runs two requests at most.
CAPPED: dict[str, Any] = {"changes": {"server.running": 2.0, "server.waiting": 2.0}, "facts": {"cap": 2}}
EFFECTIVE = {"cap": 4, "cap_source": "/slots", "kv_tokens": 4096, "kv_dtype_k": "f16", "kv_dtype_v": "f16"}


def launch_record(arm: Arm | None = None, facts: Mapping[str, Any] | None = None, **values: Any) -> dict[str, Any]:
    """launch.json of a launch that went well, before it is closed."""
    effective = {**EFFECTIVE, **(facts or {})}
    return {
        "campaign": "small",
        "launch": 0,
        "order": 0,
        "pass": 0,
        "role": OPENING,
        "arm": (arm or control_arm()).model_dump(),
        "slot_digest": "slot",
        "model": asdict(MODEL),
        "effective": {key: {"value": value, "source": "log"} for key, value in effective.items()},
        "state": "ok",
        "failure": None,
        "proof": None,
        "machine": {"cpu_cores_logical": 2, "gpus": []},
        "timings": {
            "started_at": "2026-11-30T20:44:50.000Z",
            "started_s": 990.0,
            "ready_seconds": 2.0,
            "closed_at": "2026-11-30T20:45:08.000Z",
            "seconds": 18.0,
            "planned_seconds": 30.0,
        },
        "simulated": False,
        "time_factor": 1.0,
        "ready": {"health": True, "completion_tokens": 1, "model": "tiny"},
        "started_unix_s": 1_796_071_500.0,
        "accuracy": None,
        "trials": [],
        **values,
    }


def trial_in_memory(
    changes: Mapping[str, Any] | None = None, facts: Mapping[str, Any] | None = None, **launch: Any
) -> Trial:
    """A clean trial with some values changed, as an audit sees it."""
    parent = Launch(Path("000-control"), launch_record(facts=facts, **launch))
    return Trial(Path("000-control/trials/chat-c4"), changed(TRIAL, changes), parent)


def write_launch(
    folder: Path,
    arm: Arm | None = None,
    *,
    facts: Mapping[str, Any] | None = None,
    trials: Sequence[Mapping[str, Any]] = (TRIAL,),
    log: str = "",
    **values: Any,
) -> Launch:
    """A closed launch on disk."""
    names = []
    for trial in trials:
        extra = "-matched" if trial["purpose"] == MATCHED else ""
        names.append(f"{trial['workload']}-c{trial['concurrency']}{extra}")
        write_json(folder / "trials" / names[-1] / "trial.json", trial)
    write_text(folder / "server.log", log)
    compress_log(folder)
    return close_launch(folder, launch_record(arm, facts, trials=names, **values))


class RunBuilder:
    """A run folder that grows launch by launch, each with a judged trial of a chosen throughput."""

    def __init__(
        self,
        folder: Path,
        levers: Sequence[LeverPlan],
        rule: Mapping[str, Any] | None = None,
        passes: int = 3,
        mode: str = "campaign",
        workload: Mapping[str, Any] | None = None,
        hardware: Hardware = RUN_HARDWARE,
    ) -> None:
        changes = {f"rule.{key}": value for key, value in (rule or {}).items()}
        changes |= {f"workloads.chat.{key}": value for key, value in (workload or {}).items()}
        campaign = Campaign.load(write_campaign(folder / "campaign", changes))
        record = {
            "file": campaign.dump(),
            "digest": "file",
            "rule_digest": campaign.rule.digest(),
            "hardware": asdict(hardware),
            "model": asdict(MODEL),
            "simulated": False,
        }
        self.rule: Rule = campaign.rule
        self.levers = {lever.name: lever for lever in levers}
        self.run = Run.create(folder / "results", record, dump(levers, passes, mode, Estimate(1, 1.0, 1)))

    def launch(
        self,
        name: str,
        pass_number: int,
        role: str,
        tok_s: float = 100.0,
        *,
        changes: Mapping[str, Any] | None = None,
        more: Sequence[Mapping[str, Any]] = (),
        **values: Any,
    ) -> Launch:
        """One launch; `changes` go into its judged trial, `more` are further trials, `values` go into launch.json."""
        number, folder = self.run.new_launch(name)
        noisy = tok_s * (1 + NOISE_PCT[number % len(NOISE_PCT)] / 100)
        start_s = 20.0 * number
        window = TRIAL["window"]
        at = {f"window.{name}": window[name] + start_s for name in ("opened_s", "closed_s", "started_s", "drained_s")}
        at |= {"window.opened_at": f"2026-11-30T20:{45 + number % 15}:00.000Z", "metrics.output_tok_s": noisy}
        plan = self.levers.get(name)
        arm = Arm.model_validate(plan.arms[0]) if plan else control_arm(engine="stub", checkpoint="tiny.gguf")
        failed = values.get("state") == "failed"
        return write_launch(
            folder,
            arm,
            trials=() if failed else (changed(TRIAL, {**at, **(changes or {})}), *more),
            **{
                "launch": number,
                "order": number,
                "pass": pass_number,
                "role": role,
                "started_unix_s": 1_796_071_500.0 + start_s,
                "proof": {"applied": True, "text": "shown"} if role == "treatment" else None,
                **values,
            },
        )

    def plan_passes(self, count: int) -> None:
        """Write into the plan how many passes the run is to have."""
        self.run.plan["passes"] = count
        write_json(self.run.path / "plan.json", self.run.plan)

    def passes(
        self,
        count: int,
        tok_s: Mapping[str, float],
        control: Mapping[str, Any] | None = None,
        treatments: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Run:
        """A whole run of so many passes: `tok_s` by lever; `control` and `treatments[lever]` are further arguments of
        `launch`."""
        self.plan_passes(count)
        self.launch(CONTROL, 0, OPENING, **(control or {}))
        for number in range(1, count + 1):
            for name, value in tok_s.items():
                self.launch(name, number, TREATMENT, value, **(treatments or {}).get(name, {}))
            self.launch(CONTROL, number, CLOSING, **(control or {}))
        return self.run
