"""Plays a scenario: simulated servers of known truth, the real client and observer over HTTP, the real audit.

Without it an alarm would be shown to ring on records that no measurement ever wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from lab.audit import FINDING, WARNING
from lab.campaign import CONTROL, Campaign
from lab.files import write_json, write_text
from lab.judgement import judge
from lab.lever_study import SEARCH_WINDOW_SHARE
from lab.measure import Task, measure
from lab.plan import Owed
from lab.prepare import Prepared, create_run, prepare
from lab.records import CLOSING, JUDGED, OPENING, SEARCH, TREATMENT, Launch
from lab.roofline.hardware import Hardware
from lab.runs import Run

TREATED = "changed"
"""The lever of every scenario with two arms: a custom one."""
PAIR = (CONTROL, TREATED)
"""The launches of scenes in which no prompt of the arms is compared: those of one pass alone are the same."""
TWO_PASSES = (CONTROL, TREATED, CONTROL, TREATED, CONTROL)
TRUTH: dict[str, Any] = {
    "dialect": "vllm",
    "time_factor": 20.0,
    "step_ms": 40.0,
    "step_ms_per_running": 0.5,
    "max_running": 64,
    "context_tokens": 4096,
}
"""A healthy server: 8 clients get about 180 tok/s, and a step takes more than two real milliseconds."""
WORKLOAD: dict[str, Any] = {"kind": "chat", "output_tokens": 32}
WINDOW: dict[str, float] = {"warmup_seconds": 6, "seconds": 40, "min_steady_seconds": 30}
LIMITS: dict[str, float] = {"start_seconds": 300, "stall_seconds": 60, "drain_seconds": 60}
MACHINE_CODES = {"machine-shared"}
"""What only says how busy the machine of the tests was: true, and no part of a scenario."""


@dataclass(frozen=True)
class Play:
    """One scenario.

    flags: the truth of the control's server, over TRUTH; treatment: what a second arm changes (None: there is none);
    order: arms in the order of their launches; roles: what a launch (by number) is for, where it is not the usual;
    workload, window, limits, rule, lever: over the usual ones; concurrency: clients; client: for the time of the
    measurements, breaks the client or observer as the catalogue asks; between: the campaign that a launch (by number)
    is measured under, where a person changed it in between; after: what a person does to the records before they are
    judged; judged: the arm whose codes count; accuracy_items: questions asked of each arm; hardware: what the bound is
    computed for (a simulated server has none of its own).
    """

    flags: Mapping[str, Any] = field(default_factory=dict)
    treatment: Mapping[str, Any] | None = None
    order: Sequence[str] = ()
    roles: Mapping[int, str] = field(default_factory=dict)
    workload: Mapping[str, Any] = field(default_factory=dict)
    concurrency: int = 8
    window: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    rule: Mapping[str, Any] = field(default_factory=dict)
    lever: Mapping[str, Any] = field(default_factory=dict)
    client: Callable[[], AbstractContextManager[Any]] = nullcontext
    between: Callable[[int, Campaign], Campaign] = lambda number, campaign: campaign
    after: Callable[[Run], None] = lambda run: None
    judged: str | None = None
    accuracy_items: int = 0
    hardware: Hardware | None = None

    @property
    def launches(self) -> Sequence[str]:
        """The arms in order; a treatment stands between two controls."""
        if self.order:
            return self.order
        return (CONTROL,) if self.treatment is None else (CONTROL, TREATED, CONTROL)


@dataclass(frozen=True)
class Played:
    """What came of it: code → severity and text, from trials, launches and the verdict row of the judged arm."""

    run: Run
    codes: dict[str, tuple[str, str]]
    row: dict[str, Any] | None


def play(scene: Play, folder: Path) -> Played:
    """Measure and judge a scenario below `folder`; a server that will not start is a record like any other."""
    campaign = Campaign.load(_campaign(scene, folder))
    prepared = prepare(campaign)
    run = create_run(prepared, folder / "results", "block")
    if scene.hardware is not None:
        write_json(run.path / "campaign.json", {**run.campaign, "hardware": asdict(scene.hardware)})
        run = Run(run.path)
    with scene.client():
        for number, arm in enumerate(scene.launches):
            _launch(scene, run, prepared, number, arm)
    scene.after(run)
    return _outcome(scene, run)


def _campaign(scene: Play, folder: Path) -> Path:
    treatment = {"max_running": 63} if scene.treatment is None else dict(scene.treatment)
    custom = {"title": "A change", "treatment": {"flags": treatment}, **scene.lever}
    content = {
        "name": "golden",
        "model": {"name": "simulated-model", "checkpoint": "simulated-model"},
        "server": {"engine": "simulated", "flags": {**TRUTH, **scene.flags}},
        "workloads": {"load": {**WORKLOAD, "concurrency": [scene.concurrency], **scene.workload}},
        "window": {**WINDOW, **scene.window},
        "limits": {**LIMITS, **scene.limits},
        "rule": {"workload": "load", "concurrency": scene.concurrency, **scene.rule},
        "levers": {TREATED: {"custom": custom}},
    }
    path = folder / "golden.yaml"
    write_text(path, yaml.safe_dump(content, sort_keys=False))
    return path


def _launch(scene: Play, run: Run, prepared: Prepared, number: int, name: str) -> Launch:
    """Launch one arm; passes are counted as `lab run` does: the first control belongs to pass 0."""
    campaign = scene.between(number, prepared.campaign)
    arm = campaign.control if name == CONTROL else _lever(prepared).treatments(campaign.control, prepared.engine)[0]
    controls = [launch for launch in run.launches() if launch.arm == CONTROL and launch.ok]
    role = scene.roles.get(number, TREATMENT if name != CONTROL else CLOSING if number else OPENING)
    task = Task(
        arm=arm,
        pass_number=sum(each == CONTROL for each in scene.launches[:number]),
        role=role,
        owed=[Owed("load", scene.concurrency, JUDGED)],
        lever=_lever(prepared) if role == TREATMENT else None,
        control=controls[-1] if controls else None,
        window_share=SEARCH_WINDOW_SHARE if role == SEARCH else 1.0,
        accuracy_items=scene.accuracy_items,
    )
    return measure(run, campaign, prepared.engine, task, lambda text: None)


def _lever(prepared: Prepared) -> Any:
    from lab.levers import get

    return get(prepared.campaign, TREATED)


def _outcome(scene: Play, run: Run) -> Played:
    judgement = judge(run)
    name = scene.judged or (CONTROL if scene.treatment is None else TREATED)
    everywhere = [(entry.trial.launch.arm, code) for entry in judgement.audited for code in entry.codes]
    everywhere += [(launch.arm, code) for launch in run.launches() for code in judgement.launch_codes[launch.id]]
    said = {code.code: (code.severity, code.text) for _, code in everywhere}
    codes = {code.code: (code.severity, code.text) for arm, code in everywhere if arm == name}
    row = judgement.rows[0] if scene.treatment is not None else None
    if row:
        of_the_row = {**dict.fromkeys(row["findings"], FINDING), **dict.fromkeys(row["codes"], WARNING)}
        codes = {each: said.get(each, (severity, row["reason"])) for each, severity in of_the_row.items()} | codes
    return Played(run, {code: words for code, words in codes.items() if code not in MACHINE_CODES}, row)
