"""The campaign file: model, server, workloads, rule and levers, read once and checked whole.

Without one strict reader, a misspelt key silently keeps its default and a night of server time measures the
wrong thing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from lab import yamlfile
from lab.errors import InputError
from lab.files import digest, quoted, suggest, typed_path
from lab.hardware_ref import AUTO, named
from lab.metrics import GUARDED, HIGHER_IS_BETTER
from lab.rule_check import check_rule, check_workloads
from lab.strict import Strict, numbers_as_text
from lab.workloads import Workload

if TYPE_CHECKING:
    from lab.roofline.hardware import Hardware

CONTROL = "control"
BASELINE = "baseline"
RESERVED_LEVERS = {CONTROL, BASELINE, "summary", "roofline"}
MOST_PASSES, MOST_PCT = 1_000, 1_000
DAY_SECONDS, WEEK_SECONDS, YEAR_HOURS = 86_400, 7 * 86_400, 366 * 24
RESERVED_CAMPAIGNS = {"mlflow", "reference", "rehearsal"}
CAMPAIGN_NAME = r"[a-z0-9-]{1,60}"
PROJECT = Path(__file__).resolve().parent.parent

Scalar = bool | int | float | str | list[Any]


class ModelRef(Strict):
    """The model: its name for people, and the checkpoint that the control serves."""

    name: str
    checkpoint: str


class ServerSpec(Strict):
    """The control's server: engine, where it runs, which build, flags and environment."""

    engine: str
    host: Literal["local"] = "local"
    runtime: dict[str, str] = {}
    flags: dict[str, Scalar] = {}
    env: Annotated[dict[str, str], numbers_as_text] = {}


class Window(Strict):
    """The measured window of a trial, in seconds."""

    warmup_seconds: float = Field(20, ge=0, le=DAY_SECONDS)
    seconds: float = Field(60, gt=0, le=DAY_SECONDS)
    min_steady_seconds: float = Field(60, gt=0, le=DAY_SECONDS)

    @model_validator(mode="after")
    def _long_enough(self) -> Window:
        if self.seconds < self.min_steady_seconds:
            raise ValueError(
                f"seconds ({self.seconds:g}) is below min_steady_seconds ({self.min_steady_seconds:g}), "
                "so no trial could be valid; lengthen the window or say how short it may be"
            )
        return self


class Passes(Strict):
    """How many passes a lever gets; `min: 1` is a screening only."""

    min: int = Field(2, ge=1, le=MOST_PASSES)
    max: int = Field(8, ge=1, le=MOST_PASSES)

    @model_validator(mode="after")
    def _order(self) -> Passes:
        if self.max < self.min:
            raise ValueError(f"max ({self.max}) is below min ({self.min})")
        return self


class Guard(Strict):
    """A limit on a second metric that the lever must keep, in percent of the control."""

    max_increase_pct: float | None = Field(None, ge=0, le=MOST_PCT)
    max_decrease_pct: float | None = Field(None, ge=0)

    @model_validator(mode="after")
    def _one(self) -> Guard:
        if (self.max_increase_pct is None) == (self.max_decrease_pct is None):
            raise ValueError("give exactly one of max_increase_pct and max_decrease_pct")
        if self.max_decrease_pct is not None and self.max_decrease_pct >= 100:
            raise ValueError(
                f"max_decrease_pct is {self.max_decrease_pct:g}, but nothing falls by more than 100 %, so this guard "
                "could never break; give less than 100"
            )
        return self


class Rule(Strict):
    """What decides, fixed before the first launch."""

    metric: str = "output_tok_s"
    workload: str
    concurrency: int = Field(ge=1)
    min_effect_pct: float = Field(3, ge=0, le=MOST_PCT)
    alpha: float = Field(0.05, gt=0, lt=0.5)
    passes: Passes = Passes()
    guards: dict[str, Guard] = {}
    target: float | None = Field(None, gt=0)

    @field_validator("metric")
    @classmethod
    def _metric(cls, metric: str) -> str:
        if metric not in HIGHER_IS_BETTER:
            raise ValueError(f"unknown metric {quoted(metric)}{suggest(metric, HIGHER_IS_BETTER)}")
        return metric

    @field_validator("guards")
    @classmethod
    def _guards(cls, guards: dict[str, Guard]) -> dict[str, Guard]:
        for name, guard in guards.items():
            if name not in GUARDED:
                raise ValueError(f"unknown guard {quoted(name)}{suggest(name, GUARDED)}")
            if GUARDED[name] and guard.max_decrease_pct is None:
                raise ValueError(f"{name} is better when higher; give max_decrease_pct, how much it may fall")
            if not GUARDED[name] and guard.max_increase_pct is None:
                raise ValueError(f"{name} is better when lower; give max_increase_pct, how much it may rise")
        return guards

    def digest(self) -> str:
        """Names the folder of judgements made under this rule."""
        return digest(self.model_dump())


class Accuracy(Strict):
    """Limits of the accuracy gate."""

    max_nll_rise_pct: float = Field(2, ge=0, le=MOST_PCT)
    max_task_drop_pct: float = Field(5, ge=0, le=100)
    allow_unknown: bool = False


class Budget(Strict):
    """The most hours that a plan may take."""

    hours: float = Field(gt=0, le=YEAR_HOURS)


class Limits(Strict):
    """Deadlines in seconds: server start, silence of the server, drain after the window."""

    start_seconds: float = Field(1800, gt=0, le=WEEK_SECONDS)
    stall_seconds: float = Field(120, gt=0, le=WEEK_SECONDS)
    drain_seconds: float = Field(60, ge=0, le=WEEK_SECONDS)


class _File(Strict):
    name: str
    model: ModelRef
    hardware: str | dict[str, Any] = AUTO
    server: ServerSpec
    workloads: dict[str, Workload] = Field(min_length=1)
    window: Window = Window()
    rule: Rule
    accuracy: Accuracy = Accuracy()
    budget: Budget | None = None
    limits: Limits = Limits()
    levers: dict[str, dict[str, Any]] = {}


class Arm(Strict):
    """A complete server configuration."""

    name: str
    lever: str | None = None
    treatment: str | None = None
    engine: str
    checkpoint: str
    flags: dict[str, Scalar] = {}
    env: dict[str, str] = {}
    runtime: dict[str, str] = {}

    @property
    def digest(self) -> str:
        """Names the configuration, whatever the arm is called."""
        return digest(self.model_dump(exclude={"name", "lever", "treatment"}))

    def changed(
        self,
        name: str,
        lever: str,
        treatment: str,
        *,
        checkpoint: str | None = None,
        flags: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
        runtime: dict[str, str] | None = None,
    ) -> Arm:
        """This arm with something replaced; a value of None removes a flag or variable."""

        def merged(old: dict[str, Any], new: dict[str, Any] | None) -> dict[str, Any]:
            return {key: value for key, value in {**old, **(new or {})}.items() if value is not None}

        return Arm(
            name=name,
            lever=lever,
            treatment=treatment,
            engine=self.engine,
            checkpoint=checkpoint or self.checkpoint,
            flags=merged(self.flags, flags),
            env=merged(self.env, env),
            runtime=merged(self.runtime, runtime),
        )


@dataclass(frozen=True)
class Campaign:
    """A checked campaign; attributes are those of the file, `document` knows the lines."""

    document: yamlfile.Document
    file: _File

    @classmethod
    def load(cls, path: Path | str) -> Campaign:
        """Read and check a campaign file; raises InputError naming file, line and field."""
        document = yamlfile.load(find(path))
        file = document.validate(_File, document.data)
        campaign = cls(document, file)
        campaign._check()
        return campaign

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    @property
    def folder(self) -> Path:
        """The folder that relative paths of the file start from."""
        return self.document.path.resolve().parent

    @property
    def control(self) -> Arm:
        """The arm that every treatment is compared with."""
        server = self.file.server
        return Arm(
            name=CONTROL,
            engine=server.engine,
            checkpoint=self.file.model.checkpoint,
            flags=server.flags,
            env=server.env,
            runtime=server.runtime,
        )

    def named_hardware(self) -> Hardware | None:
        """What the file says that serves; None for `auto`: what the machine has."""
        return named(self.document, self.file.hardware, self.folder)

    def dump(self) -> dict[str, Any]:
        """The resolved file, defaults filled in, as plain JSON types."""
        return self.file.model_dump()

    def _check(self) -> None:
        file, error = self.file, self.document.error
        if not re.fullmatch(CAMPAIGN_NAME, file.name):
            raise error(("name",), f"{quoted(file.name)} may hold only small letters, digits and '-'")
        if file.name in RESERVED_CAMPAIGNS:
            raise error(("name",), f"'{file.name}' is a folder of its own in results/; choose another name")
        self.named_hardware()
        check_workloads(self.document, file.workloads, file.window, self.folder)
        check_rule(self.document, file.rule, file.workloads)
        for name in file.levers:
            if not re.fullmatch(r"[a-z0-9_]{1,60}", name):
                raise error(("levers", name), "a lever's name holds only small letters, digits and '_'")
            if name in RESERVED_LEVERS:
                raise error(("levers", name), "this name is the lab's own; choose another")


def find(path: Path | str) -> Path:
    """A campaign path as given, or below the project when it is not below the working folder."""
    path = typed_path(path)
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name a campaign file such as experiments/local.yaml")
    in_project = typed_path(PROJECT / path)
    return in_project if not path.exists() and in_project.is_file() else path
