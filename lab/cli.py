"""The commands.

Without one door that turns errors into one line and an exit code, scripts and people get tracebacks.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lab.arguments import parser
from lab.errors import InputError, LabError

if TYPE_CHECKING:
    from lab.roofline.hardware import Hardware

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code: 0 done, 1 the run failed, 2 bad input, 3 disk full, 130 interrupted."""
    kept = ""
    try:
        options = parser().parse_args(arguments)
        kept = options.kept
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.default_int_handler)  # a scheduler's way to say Ctrl-C
        return COMMANDS[options.command](options)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"lab: interrupted{kept}", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return 0


def _check(options: argparse.Namespace) -> int:
    from lab.check import check
    from lab.report.check_page import render
    from lab.report.page import WIDTH
    from lab.report.progress import progress
    from lab.secrets import concealed

    hardware = None if options.hardware is None else _hardware(options.hardware)
    with progress() as say:
        checked = check(
            options.url,
            options.concurrency,
            options.seconds,
            model=options.model,
            headers=_key_header(options.key_env),
            key_from=options.key_env,
            hardware=hardware,
            say=say,
        )
    if options.json:
        text = json.dumps(checked.figures(), indent=2) + "\n"
    else:
        text = render(checked, shutil.get_terminal_size((WIDTH, 0)).columns)
    print(concealed(text, checked.secrets), end="")
    return 0


def _aa(options: argparse.Namespace) -> int:
    from lab.campaign import Campaign
    from lab.errors import say
    from lab.floor import measure_floor, render

    if options.passes < 2:
        raise InputError("--passes: two at least; one pass has no spread")
    print(render(measure_floor(options.file, options.passes, say), Campaign.load(options.file)))
    return 0


def _roofline(options: argparse.Namespace) -> int:
    from lab.deployment import Deployment, assess
    from lab.report.page import WIDTH
    from lab.report.roofline_page import render
    from lab.roofline import Layout
    from lab.roofline.model_catalogue import find

    acceptance = options.acceptance or ()
    if len(acceptance) != (options.draft_tokens or 0):
        raise InputError(
            f"--acceptance: {len(acceptance)} shares for --draft-tokens {options.draft_tokens or 0}; give both, with a "
            "share for each drafted token"
        )
    asked = Deployment(
        model=find(options.model, options.recipe),
        hardware=_hardware(options.hardware),
        layout=Layout(tp=options.tp, ep=options.ep, dp=options.dp, pp=options.pp),
        batch=options.batch,
        context=options.context,
        kv_dtype=options.kv_dtype,
        shared_prefix=options.shared_prefix,
        routing=options.routing,
        acceptance=acceptance,
        activations=options.activations,
        memory_fraction=options.memory_fraction,
    )
    found = assess(asked)
    if options.json:
        print(json.dumps(found.figures(), indent=2, allow_nan=False))
    else:
        print(render(found, shutil.get_terminal_size((WIDTH, 0)).columns), end="")
    return 0


def _hardware(name: str) -> Hardware:
    """What `--hardware` names: this machine (auto), a GPU of the catalogue, or one of the user's own file."""
    if name == "auto":
        from lab.observe import local_gpus
        from lab.this_machine import hardware_here

        return hardware_here(local_gpus(os.environ))
    from lab.roofline.hardware_catalogue import find

    return find(name)


def _key_header(variable: str | None) -> dict[str, str]:
    if variable is None:
        return {}
    key = os.environ.get(variable, "").strip()
    if not key:
        raise InputError(f"--key-env: the environment variable {variable} is not set, or empty")
    if not (key.isascii() and key.isprintable()):
        raise InputError(f"--key-env: the value of {variable} is no key: it holds other than plain characters")
    return {"Authorization": f"Bearer {key}"}


def _run(options: argparse.Namespace) -> int:
    from lab.errors import say
    from lab.runner import run_campaign

    if options.fresh and options.resume is not None:
        raise InputError("--fresh and --resume exclude each other; give one of them")
    if options.dry_run:
        from lab.dry_run import describe

        print(describe(options.file, options.levers, options.passes))
        return 0
    run = run_campaign(
        options.file,
        only=options.levers,
        passes=options.passes,
        resume=options.resume is not None,
        resume_id=options.resume or None,
        fresh=options.fresh,
        over_budget=options.over_budget,
        publish=not options.no_publish,
    )
    if run is None:
        return 0
    from lab import views
    from lab.report.table import render

    print(render(_rows(run.path), "table", heading=views.heading(run)), end="")
    say(f"records: {run.path}")
    say("dashboards: python -m lab ui")
    failures = run.notebook_failures()
    for lever, reason in failures.items():
        say(f"lab: the notebook of {lever} failed: {reason}; try again with --resume {run.run_id}")
    return 1 if failures else 0


def _verdicts(options: argparse.Namespace) -> int:
    from lab import views
    from lab.campaign import Campaign
    from lab.report.table import render
    from lab.runs import pick_run, results_folder

    refused = _verdict_names(options.fail_on)
    rule = None if options.rule is None else Campaign.load(options.rule).rule
    run = pick_run(results_folder(), options.campaign, options.run)
    for problem in run.damaged():
        print(f"lab: {problem}; this launch is left out", file=sys.stderr)
    if rule or options.rejudge or run.status["state"] != "done" or not _stored(run.path).exists():
        from lab import judgement

        judged = judgement.judge(run, rule)
        if rule or options.rejudge:
            judgement.write(run, judged)
        rows = judged.rows
    else:
        rows = _rows(run.path)
    print(render(rows, options.format, heading=views.heading(run, rule)), end="")
    return 1 if {row["verdict"] for row in rows} & refused else 0


def _verdict_names(names: Sequence[str] | None) -> set[str]:
    from lab import verdict
    from lab.files import quoted, suggest

    known = {
        *(verdict.ADOPT, verdict.REJECT, verdict.NO_EFFECT, verdict.INCONCLUSIVE),
        *(verdict.INVALID, verdict.FAILED, verdict.NOT_APPLICABLE),
    }
    for name in names or ():
        if name not in known:
            raise InputError(f"--fail-on: {quoted(name)} is no verdict{suggest(name, known)}")
    return set(names or ())


def _rows(path: Path) -> list[dict]:
    """The verdicts written under the run's own rule."""
    from lab.files import read_json

    return read_json(_stored(path))


def _stored(path: Path) -> Path:
    from lab.runs import Run

    return path / "judgements" / Run(path).campaign["rule_digest"] / "verdicts.json"


def _audit(options: argparse.Namespace) -> int:
    from lab.audit import INVALID, audit
    from lab.judgement import judge
    from lab.runs import Run

    path = options.path
    launches: dict[str, list] = {}
    if (path / "trial.json").exists():
        audited, damaged = [(path.name, audit(path))], []
    elif (path / "campaign.json").exists():
        run = Run(path.resolve())
        judged = judge(run)
        audited, damaged = [(entry.trial.id, entry.codes) for entry in judged.audited], run.damaged()
        launches = judged.launch_codes
    else:
        raise InputError(f"{path}: is neither the folder of a run (campaign.json) nor of a trial (trial.json)")
    for problem in damaged:
        print(f"lab: {problem}", file=sys.stderr)
    for name, codes in [*((name, codes) for name, codes in launches.items() if codes), *audited]:
        state = "invalid" if any(code.severity == INVALID for code in codes) else "valid"
        print(f"{name:<40} {state:<8} {'; '.join(f'{code.code}: {code.text}' for code in codes)}".rstrip())
    return 1 if damaged else 0


def _publish(options: argparse.Namespace) -> int:
    from lab import tracking
    from lab.runs import pick_run, results_folder, runs

    results = results_folder()
    if options.run or options.campaign:
        chosen = [pick_run(results, options.campaign, options.run)] if options.run else runs(results, options.campaign)
    else:
        chosen = runs(results)
    if not chosen:
        raise InputError(f"{results}: holds no run to publish; measure one with `lab run FILE`")
    for run in chosen:
        done = tracking.publish(run.path)
        counts = f"{done.created} created, {done.updated} updated, {done.unchanged} unchanged"
        print(f"{run.name}/{run.run_id}: {counts}; look with `lab ui`", file=sys.stderr)
        print(json.dumps({"run": run.run_id, **vars(done)}, default=str))
    return 0


def _ui(options: argparse.Namespace) -> int:
    from lab import tracking
    from lab.runs import results_folder

    tracking.ui(results_folder(), port=options.port, host=options.host)
    return 0


COMMANDS = {
    "run": _run,
    "aa": _aa,
    "check": _check,
    "roofline": _roofline,
    "verdicts": _verdicts,
    "audit": _audit,
    "publish": _publish,
    "ui": _ui,
}
