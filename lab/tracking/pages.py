"""Links into MLflow's page, and the ready-made view of the verdicts.

Without them a visitor lands on an empty overview of traces, and the table shows no metric at all.
"""

from __future__ import annotations

import json
from urllib.parse import quote

from lab.files import digest

MODE = "workflowType=machine_learning"
LEVERS_ONLY = "tags.`lab.kind` = 'lever'"
VERDICT_VIEW = {
    "searchFilter": LEVERS_ONLY,
    "orderByKey": "metrics.`effect_pct`",
    "orderByAsc": False,
    "startTime": "ALL",
    "lifecycleFilter": "Active",
    "modelVersionFilter": "All Runs",
    "datasetsFilter": [],
    "selectedColumns": [
        "tags.`verdict`",
        "tags.`verdict.reason`",
        "tags.`codes`",
        "tags.`findings`",
        "metrics.`effect_pct`",
        "metrics.`effect_pct_lo`",
        "metrics.`effect_pct_hi`",
        "metrics.`bound_fraction`",
        "metrics.`running`",
        "params.`concurrency`",
    ],
    "runsExpanded": {},
    "runsPinned": [],
    "runsHidden": [],
    "runsHiddenMode": "FIRST_10_RUNS",
    "viewMaximized": True,
    "runListHidden": False,
    "isAccordionReordered": False,
    "useGroupedValuesInCharts": True,
    "hideEmptyCharts": True,
    "groupBy": None,
    "groupsExpanded": {},
    "autoRefreshEnabled": True,
}
VIEW_KEY = digest(VERDICT_VIEW)
VIEW_TAGS = {f"mlflow.sharedViewState.{VIEW_KEY}": json.dumps(VERDICT_VIEW, sort_keys=True)}


def runs_link(base: str, experiment_id: str) -> str:
    """The table of all runs."""
    return f"{base}/#/experiments/{experiment_id}/runs?{MODE}"


def verdicts_link(base: str, experiment_id: str) -> str:
    """The shared view: one row per lever, the largest effect on top."""
    return f"{runs_link(base, experiment_id)}&viewStateShareKey={VIEW_KEY}"


def filtered_link(base: str, experiment_id: str) -> str:
    """The same rows without the shared view, for an MLflow that no longer knows it."""
    order = f"orderByKey={quote('metrics.`effect_pct`', safe='')}&orderByAsc=false"
    return f"{runs_link(base, experiment_id)}&searchFilter={quote(LEVERS_ONLY, safe='')}&{order}"
