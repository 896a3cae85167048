"""A rule is refused when the file's own workloads could not answer it, and only then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.campaign import Rule, Window
from lab.errors import InputError
from lab.rule_check import check_rule, check_workloads
from lab.workloads import Workload
from lab.yamlfile import Document

DOCUMENT = Document(Path("x.yaml"), {}, {(): 1})
WINDOW = Window(warmup_seconds=1, seconds=5, min_steady_seconds=4)


def workload(**values: Any) -> Workload:
    return Workload(**{"kind": "chat", "output_tokens": 8, "concurrency": [1, 4], **values})


def rule(**values: Any) -> Rule:
    return Rule(**{"workload": "chat", "concurrency": 4, **values})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"workload": "chta"}, "x.yaml:1: rule.workload: there is no workload 'chta'; did you mean 'chat'?"),
        ({"concurrency": 2}, "x.yaml:1: rule.concurrency: 2 is not measured by the workload [1, 4]"),
        ({"metric": "goodput_rps"}, "x.yaml:1: rule.metric: goodput_rps needs limits; give workloads.chat an slo"),
    ],
)
def test_a_rule_about_what_is_not_measured_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        check_rule(DOCUMENT, rule(**values), {"chat": workload()})
    assert str(caught.value).startswith(said)


def test_a_rule_that_its_workload_answers_is_taken() -> None:
    check_rule(DOCUMENT, rule(), {"chat": workload()})
    check_rule(DOCUMENT, rule(metric="goodput_rps"), {"chat": workload(slo={"ttft_ms": 500.0})})


def test_a_workload_needs_a_name_that_a_folder_can_have(tmp_path: Path) -> None:
    check_workloads(DOCUMENT, {"chat_2": workload()}, WINDOW, tmp_path)
    with pytest.raises(InputError, match=r"workloads\.a b: a workload's name holds only small letters"):
        check_workloads(DOCUMENT, {"a b": workload()}, WINDOW, tmp_path)


def test_a_file_that_a_workload_lacks_is_told_at_its_path(tmp_path: Path) -> None:
    lacking = workload(kind="jsonl", path="absent.jsonl")
    with pytest.raises(InputError, match=r"^x\.yaml:1: workloads\.chat\.path: .*absent\.jsonl"):
        check_workloads(DOCUMENT, {"chat": lacking}, WINDOW, tmp_path)
