"""The words of the command line.

Without them apart from what the commands do, `lab --help` would import the whole lab.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import TypeVar

from lab.errors import InputError
from lab.files import quoted, typed_path

_Read = TypeVar("_Read")
LONGEST_NAME = 255
MOST_COUNT = 65_535
MOST_TOKENS = 999_999_999
STEEPEST_ROUTING = 10
SHORTEST_CHECK_SECONDS, LONGEST_CHECK_SECONDS = 4, 86_400


def parser() -> argparse.ArgumentParser:
    """The whole command line; the name of the command is in `command`, what an interrupt leaves in `kept`."""
    whole = argparse.ArgumentParser(
        prog="lab", description="Measure which levers of an LLM serving stack really help.", allow_abbrev=False
    )
    whole.set_defaults(kept="")
    commands = whole.add_subparsers(required=True, metavar="COMMAND", dest="command")

    run = commands.add_parser("run", help="measure a campaign", allow_abbrev=False)
    run.add_argument("file", metavar="FILE", help="a campaign file, such as experiments/local.yaml")
    run.add_argument("--levers", type=_as(_names, "--levers"), metavar="A,B", help="only these levers of the file")
    run.add_argument("--passes", type=_passes, metavar="N", help="this many passes instead of rule.passes.max")
    run.add_argument(
        "--resume",
        nargs="?",
        type=_run_id,
        const="",
        metavar="RUN-ID",
        help="continue the newest unfinished run, or this one",
    )
    run.add_argument("--fresh", action="store_true", help="never resume")
    run.add_argument("--dry-run", action="store_true", help="print launches, minutes and disk, and stop")
    run.add_argument("--over-budget", action="store_true", help="run although the plan exceeds budget.hours")
    run.add_argument("--no-publish", action="store_true", help="do not publish to MLflow")
    run.set_defaults(kept="; nothing measured is lost, continue with --resume")

    floor = commands.add_parser("aa", help="control against control: the noise floor of FILE", allow_abbrev=False)
    floor.add_argument("file", metavar="FILE", help="a campaign file, such as experiments/local.yaml")
    floor.add_argument("--passes", type=_passes, metavar="N", default=6, help="passes; two launches each (default: 6)")

    check = commands.add_parser(
        "check", help="load a running server for a minute: what did it really run, and why", allow_abbrev=False
    )
    check.add_argument("url", metavar="URL", help="address of an SGLang, vLLM or llama.cpp server")
    check.add_argument(
        "-c", "--concurrency", type=_clients, required=True, metavar="N", help="clients at once, 1 to 16384"
    )
    check.add_argument(
        "--seconds",
        type=_seconds,
        default=30.0,
        metavar="S",
        help=f"measured window, {SHORTEST_CHECK_SECONDS} to {LONGEST_CHECK_SECONDS}; default: 30; about 30 s more in "
        "all, longer on a slow server",
    )
    check.add_argument(
        "--model", type=_as(_name, "--model"), metavar="NAME", help="which of the served models; default: the first"
    )
    check.add_argument(
        "--hardware",
        type=_as(_path, "--hardware"),
        metavar="KEY|FILE",
        help="what the server runs on, for its bound: a GPU of the catalogue, a YAML file with one of your own, or "
        "auto: what this machine has",
    )
    check.add_argument(
        "--key-env",
        type=_as(_name, "--key-env"),
        metavar="VARIABLE",
        help="environment variable that holds the server's API key",
    )
    check.add_argument("--json", action="store_true", help="figures as JSON on standard output")
    check.set_defaults(kept="; a check keeps nothing, and the server runs on as it was")

    _add_roofline(commands)

    verdicts = commands.add_parser("verdicts", help="print the verdict table", allow_abbrev=False)
    verdicts.add_argument(
        "campaign",
        nargs="?",
        type=_as(_name, "CAMPAIGN"),
        metavar="CAMPAIGN",
        help="default: the run finished or touched last",
    )
    verdicts.add_argument("--run", type=_as(_name, "--run"), metavar="RUN-ID")
    verdicts.add_argument("--format", default="table", choices=["table", "md", "html", "csv", "json"])
    verdicts.add_argument("--rejudge", action="store_true", help="judge the records again instead of reading verdicts")
    verdicts.add_argument(
        "--rule", metavar="FILE", help="judge by the rule of this campaign file; kept beside the run's own judgement"
    )
    verdicts.add_argument(
        "--fail-on",
        type=_as(_names, "--fail-on"),
        metavar="VERDICTS",
        help="exit 1 if a row has one of these, e.g. reject,invalid",
    )

    audit = commands.add_parser("audit", help="audit records again", allow_abbrev=False)
    audit.add_argument("path", metavar="PATH", type=typed_path, help="the folder of a run, or of one trial")

    publish = commands.add_parser("publish", help="rebuild MLflow from files", allow_abbrev=False)
    publish.add_argument(
        "campaign", nargs="?", type=_as(_name, "CAMPAIGN"), metavar="CAMPAIGN", help="default: every campaign"
    )
    publish.add_argument("--run", type=_as(_name, "--run"), metavar="RUN-ID")

    ui = commands.add_parser("ui", help="serve MLflow on this machine", allow_abbrev=False)
    ui.add_argument("--port", type=_count, default=5000)
    ui.add_argument("--host", type=_as(_name, "--host"), default="127.0.0.1", help="default: this machine only")
    return whole


def _add_roofline(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    add = commands.add_parser(
        "roofline", help="the most that a deployment can give, and what limits it", allow_abbrev=False
    ).add_argument
    add(
        "--model",
        required=True,
        type=_as(_path, "--model"),
        metavar="NAME|PATH",
        help="of the catalogue, or a GGUF, config.json or its folder",
    )
    add(
        "--hardware",
        required=True,
        type=_as(_path, "--hardware"),
        metavar="KEY|FILE",
        help="a GPU of the catalogue, a YAML file with one of your own, or auto: what this machine has",
    )
    add(
        "--recipe",
        type=_as(_name, "--recipe"),
        metavar="R",
        help="how the weights are stored: NVFP4, FP8, …; default: as first published",
    )
    add("--tp", type=_count, default=1, metavar="N", help="GPUs over which each sequence is sliced (default: 1)")
    add("--ep", type=_count, default=1, metavar="N", help="GPUs over which whole experts are spread (default: 1)")
    add("--dp", type=_count, default=1, metavar="N", help="groups with sequences of their own (default: 1)")
    add("--pp", type=_count, default=1, metavar="N", help="stages of layers (default: 1)")
    add("--batch", type=_count, default=16, metavar="N", help="sequences that run at once in all (default: 16)")
    add("--context", type=_tokens, default=1024, metavar="N", help="tokens in the cache of each (default: 1024)")
    add(
        "--kv-dtype",
        type=_kv_dtype,
        metavar="T",
        help="cache type as engines name it: fp8, bfloat16, q8_0, …; auto, as without it: what the model's servers use",
    )
    add("--shared-prefix", type=_tokens, metavar="N", help="tokens of context that all sequences share")
    add(
        "--routing",
        type=_routing,
        default="uniform",
        metavar="LAW",
        help="how tokens pick experts: uniform, balanced, or the exponent of a power law (default: uniform)",
    )
    add("--draft-tokens", type=_count, metavar="G", help="tokens drafted for each sequence and step")
    add(
        "--acceptance",
        type=_shares,
        metavar="P,P,…",
        help="for each drafted position the share of all steps in which its token is accepted; never rising",
    )
    add("--activations", choices=["bf16", "fp8", "fp4"], help="their precision where it is not that of the weights")
    add("--memory-fraction", type=_share, default=0.9, metavar="F", help="of the memory, for the engine (default: 0.9)")
    add("--json", action="store_true", help="figures as JSON")


def _as(read: Callable[[str, str], _Read], option: str) -> Callable[[str], _Read]:
    """A reader of one option's text that can name the option."""
    return lambda text: read(text, option)


def _name(text: str, option: str) -> str:
    if not text or not text.isprintable() or len(text) > LONGEST_NAME:
        kind = "is empty" if not text else "is no name" if len(text) <= LONGEST_NAME else "is too long"
        raise InputError(f"{option}: {quoted(text)} {kind}; give 1 to {LONGEST_NAME} printable characters")
    return text


def _run_id(text: str) -> str:
    """Empty: the newest unfinished run."""
    return text and _name(text, "--resume")


def _names(text: str, option: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if "" in names:
        raise InputError(f"{option}: {quoted(text)} holds an empty name; write names with a comma between them")
    return [_name(name, option) for name in names]


def _path(text: str, option: str) -> str:
    """What may be a name or a path, as it was typed but for `~`."""
    try:
        path = typed_path(text)
    except InputError as error:
        raise InputError(f"{option}: {error}") from None
    return str(path) if text.startswith("~") else text


def _kv_dtype(text: str) -> str | None:
    name = _name(text, "--kv-dtype").lower()
    return None if name == "auto" else name


def _count(text: str) -> int:
    return _whole(text, MOST_COUNT)


def _passes(text: str) -> int:
    from lab.campaign import MOST_PASSES

    return _whole(text, MOST_PASSES)


def _clients(text: str) -> int:
    from lab.workloads import MOST_CLIENTS

    return _whole(text, MOST_CLIENTS)


def _tokens(text: str) -> int:
    return _whole(text, MOST_TOKENS, " of tokens")


def _whole(text: str, most: int, what: str = "") -> int:
    if not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"'{text[:20]}' is not a whole number{what} from 1 to {most}")
    return int(text)


def _seconds(text: str) -> float:
    return _number(text, SHORTEST_CHECK_SECONDS, LONGEST_CHECK_SECONDS, " of seconds")


def _share(text: str) -> float:
    return _number(text, 0, 1)


def _number(text: str, least: int, most: int, what: str = "") -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"'{text[:20]}' is not a number{what} from {least} to {most}")
    return value


def _shares(text: str) -> tuple[float, ...]:
    return tuple(_share(part) for part in text.split(","))


def _routing(text: str) -> str | float:
    if text in ("uniform", "balanced"):
        return text
    try:
        exponent = float(text)
    except ValueError:
        exponent = 0.0
    if not 0 < exponent <= STEEPEST_ROUTING:
        raise argparse.ArgumentTypeError(
            f"'{text[:20]}' is not uniform, balanced or an exponent above 0, at most {STEEPEST_ROUTING}"
        )
    return exponent
