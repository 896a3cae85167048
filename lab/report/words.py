"""How the lab writes its figures: signs, decimals, dashes, and the heading of a run.

Without one wording, the table says "-0.0 %" where the note says "+0.0 %", and a missing value reads as a measured
zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

MISSING = "–"
SIMULATED = "SIMULATED: these figures come from the simulated server and say nothing about a machine."
Row = Mapping[str, Any]


def percent(value: float | None, decimals: int = 1, signed: bool = False) -> str:
    """`41.0`, `+3.9` or `−3.9` without the percent sign; a dash when missing or not finite; zero carries no sign."""
    if value is None or not math.isfinite(value):
        return MISSING
    text = f"{abs(value):.{decimals}f}"
    if float(text) == 0:
        return text
    return ("−" if value < 0 else "+" if signed else "") + text


def effect(row: Row) -> str:
    """`+31.0 % [+27.9, +34.2]`; without an interval only the effect; a dash when there is none."""
    if row.get("effect_pct") is None:
        return MISSING
    text = f"{percent(row['effect_pct'], signed=True)} %"
    low, high = row.get("ci_low_pct"), row.get("ci_high_pct")
    if low is None and high is None:
        return text
    return f"{text} [{percent(low, signed=True)}, {percent(high, signed=True)}]"


def matched_batch(row: Row) -> str | None:
    """`at equal batch −3.9 %` when the arms ran different batches, else None."""
    value = row.get("effect_matched_batch_pct")
    return None if value is None else f"at equal batch {percent(value, signed=True)} %"


def ran_of_asked(row: Row) -> str:
    """`2.0 / 4`: requests that ran (server's mean) of those that were offered; a dash when nothing ran."""
    running, offered = row.get("concurrency_running"), row.get("concurrency_offered")
    return MISSING if running is None else f"{running:.1f} / {MISSING if offered is None else offered}"


def of_bound(row: Row) -> str:
    """The treatment's share of the roofline in percent: whole numbers, one decimal below ten."""
    fraction = row.get("bound_fraction")
    if fraction is None:
        return MISSING
    return f"{percent(100 * fraction, 0 if fraction >= 0.0995 else 1)} %"


def of_gap(row: Row) -> str:
    """`+34 %`: the share of the way from the control to the campaign's target that the lever covers."""
    share = row.get("gap_closed_pct")
    return MISSING if share is None else f"{percent(share, 0, signed=True)} %"


def lever_name(row: Row) -> str:
    """The lever, with its treatment in brackets when that says more."""
    lever, treatment = row["lever"], row.get("treatment")
    return lever if treatment in (None, "", lever) else f"{lever} ({treatment})"


def one_line(text: str) -> str:
    """A text on one line, without control characters that a log line may have carried into it."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())


def reason(row: Row) -> str:
    """The reason on one line; a dash when there is none."""
    return one_line(row.get("reason") or "") or MISSING


def remarks(row: Row) -> list[str]:
    """Codes, findings and guards that did not hold."""
    guards = [f"guard {name} {state}" for name, state in (row.get("guards") or {}).items() if state != "held"]
    return list(dict.fromkeys([*(row.get("codes") or []), *(row.get("findings") or []), *guards]))


def explanations(rows: Sequence[Row]) -> list[str]:
    """What findings mean, in a sentence each, below a table: `structural-gap (mtp, kv_cache_dtype): …`; levers of
    which the same is true share it."""
    levers: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for finding in row.get("findings") or []:
            if text := _explained(finding, row):
                levers.setdefault((finding, text), []).append(lever_name(row))
    return [one_line(f"{finding} ({', '.join(names)}): {text}") for (finding, text), names in levers.items()]


def _explained(finding: str, row: Row) -> str | None:
    """None for a finding that the row's reason tells."""
    match finding:
        case "structural-gap":
            return row.get("structural_gap")
        case "structural-gap-control":
            gap = row.get("structural_gap")
            return gap and f"of the control alone: {gap}"
        case "expected-sign-missed":
            return (
                f"the bound expects {percent(row.get('predicted_effect_pct'), signed=True)} % at the batches that "
                f"ran, measured was {effect(row)}: the whole interval lies on the other side of zero, so bytes and "
                "messages do not explain this lever here"
            )
        case "more-devices-than-named":
            return (
                "the server says that it uses more devices than hardware.count of the campaign file names; bound and "
                "figures per device go by the server's word"
            )
    return None


def effect_title(rows: Sequence[Row]) -> str:
    """The head of the effect column: `effect at C=4`, or `effect` when the rows were judged at several levels."""
    levels = {row.get("concurrency_offered") for row in rows} - {None}
    return f"effect at C={levels.pop()}" if len(levels) == 1 else "effect"


def heading(
    campaign: Mapping[str, Any],
    passes: int,
    run_id: str,
    effective: Mapping[str, Any] | None = None,
    machine: str | None = None,
    afterwards: Mapping[str, Any] | None = None,
) -> str:
    """The lines above a verdict table: which run on which machine, what really served, and the rule that judged.

    `campaign` is `campaign.json["file"]`, `passes` the most that were planned, `afterwards` a rule that was set when
    the run had been measured, `effective` the control's `launch.json["effective"]` (key → value and
    source): the formats are those that the server resolved, since a checkpoint's name may promise another one.
    """
    model, rule = campaign["model"], afterwards or campaign["rule"]
    ran = " · ".join(part for part in (campaign["name"], run_id, machine) if part)
    served = f"{model['name']} from {model['checkpoint']}: {formats(effective or {})}"
    whose = "another rule, set afterwards" if afterwards else "rule"
    judged = (
        f"{whose}: {rule['metric']} of {rule['workload']} at C={rule['concurrency']}, effects from "
        f"{rule['min_effect_pct']:g} %, alpha {rule['alpha']:g}, up to {passes} pass{'' if passes == 1 else 'es'}"
    )
    return f"{ran}\n{served}\n{judged}"


def formats(effective: Mapping[str, Any]) -> str:
    """`weights Q4_1, KV f16, llama.cpp b11549` as the server said; `formats not known` when it said nothing."""
    facts = {key: fact["value"] for key, fact in effective.items()}
    keys, values = facts.get("kv_dtype_k"), facts.get("kv_dtype_v")
    cache = keys if keys == values else f"{keys or MISSING}/{values or MISSING}"
    parts = [("weights ", facts.get("checkpoint_format")), ("KV ", cache), ("", facts.get("build"))]
    return ", ".join(f"{label}{value}" for label, value in parts if value is not None) or "formats not known"
