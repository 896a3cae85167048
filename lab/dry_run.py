"""What a campaign would do, before it does it.

Without it, nobody learns that a plan needs a night until the night is over.
"""

from __future__ import annotations

from collections.abc import Sequence

from lab import plan
from lab.campaign import Campaign
from lab.floor import reach
from lab.prepare import prepare
from lab.runs import results_folder, runs


def describe(path: str, only: Sequence[str] | None, passes: int | None) -> str:
    """Launches, minutes and disk of a campaign, lever by lever; raises InputError as a real run would."""
    campaign = Campaign.load(path)
    prepared = prepare(campaign, only, passes)
    past = [launch for run in runs(results_folder(), campaign.name)[-3:] for launch in run.launches()]
    expected = plan.estimate(campaign, prepared.levers, prepared.passes, past)
    longest = plan.estimate(campaign, prepared.levers, prepared.passes, longest=True)
    lines = [
        f"campaign {campaign.name}: {prepared.model.name}, {prepared.engine.build(campaign.control)}",
        f"rule: {campaign.rule.metric} of '{campaign.rule.workload}' at C={campaign.rule.concurrency}, "
        f"at least {campaign.rule.min_effect_pct:g} %, alpha {campaign.rule.alpha:g}",
        "",
    ]
    for lever in prepared.levers:
        if lever.not_applicable:
            lines.append(f"  {lever.name:<18} not applicable: {lever.not_applicable}")
            continue
        launches = prepared.passes * len(lever.arms)
        search = f", {lever.searches} search launches" if lever.searches else ""
        lines.append(
            f"  {lever.name:<18} {_times(launches)}{search}: {', '.join(_change(campaign, a) for a in lever.arms)}"
        )
    lines += [f"  {'control':<18} {_times(prepared.passes + 1)}, each closing one pass and opening the next", ""]
    for number in range(1, prepared.passes + 1):
        order = plan.lever_order([lever.name for lever in prepared.levers if lever.arms], number)
        lines.append(f"  pass {number}: control → {' → '.join(order)} → control")
    budget = f" of {campaign.budget.hours * 60:.0f} allowed" if campaign.budget else ""
    lines += [
        "",
        f"{expected.launches} launches, about {expected.seconds / 60:.1f} minutes{budget} "
        f"({f'from {len(past)} launches on record' if past else 'nothing on record yet'}; "
        f"at most {longest.seconds / 60:.0f} if every start and drain takes its limit), "
        f"{expected.disk_bytes / 1e6:.0f} MB on disk",
        str(
            reach(campaign, prepared.passes) or "no `lab aa` of this campaign on record: what it can tell is not known"
        ),
    ]
    return "\n".join(lines)


def _times(launches: int) -> str:
    return f"{launches} launch{'' if launches == 1 else 'es'}"


def _change(campaign: Campaign, arm: dict) -> str:
    control = campaign.control
    changed = [f"{key}={value}" for key, value in arm["flags"].items() if control.flags.get(key) != value]
    changed += [f"{key}={value}" for key, value in arm["env"].items() if control.env.get(key) != value]
    if arm["checkpoint"] != control.checkpoint:
        changed.append(f"checkpoint {arm['checkpoint']}")
    return " ".join(changed) or arm["treatment"]
