"""Whether the workloads of a campaign file are complete and can answer its rule.

Without it a rule about a load that nobody measures, or about goodput without limits, is noticed when the launches are
over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lab.errors import InputError
from lab.files import suggest
from lab.metrics import GOODPUT
from lab.workloads import Workload
from lab.yamlfile import Document

if TYPE_CHECKING:
    from lab.campaign import Rule, Window


def check_workloads(document: Document, workloads: Mapping[str, Workload], window: Window, folder: Path) -> None:
    """Raise InputError, with line and field, for a name that no folder can have, and for what is wrong in the files
    that a workload names; their paths start at `folder`."""
    for name, workload in workloads.items():
        if not re.fullmatch(r"[a-z0-9_-]{1,60}", name):
            text = "a workload's name holds only small letters, digits, '_' and '-'"
            raise document.error(("workloads", name), text)
        try:
            workload.check(folder, window.warmup_seconds + window.seconds)
        except InputError as problem:
            raise document.error(("workloads", name, "path"), str(problem)) from None


def check_rule(document: Document, rule: Rule, workloads: Mapping[str, Workload]) -> None:
    """Raise InputError, with line and field, for a rule about a load or metric that these workloads do not measure."""
    if rule.workload not in workloads:
        hint = suggest(rule.workload, workloads)
        raise document.error(("rule", "workload"), f"there is no workload '{rule.workload}'{hint}")
    judged = workloads[rule.workload]
    if rule.concurrency not in judged.concurrency:
        text = f"{rule.concurrency} is not measured by the workload {judged.concurrency}"
        raise document.error(("rule", "concurrency"), text)
    if GOODPUT in (rule.metric, *rule.guards) and judged.slo is None:
        place = ("rule", "metric") if rule.metric == GOODPUT else ("rule", "guards", GOODPUT)
        text = f"{GOODPUT} needs limits; give workloads.{rule.workload} an slo, as in {{ttft_ms: 500}}"
        raise document.error(place, text)
