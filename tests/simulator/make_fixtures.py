"""Make the fixtures of this folder from captures of real servers: `python -m tests.simulator.make_fixtures SAMPLES`.

Without it nobody could say where a fixture comes from. The captures are the project's own.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from tests.simulator.shapes import families, paths

FIXTURES = Path(__file__).parent / "fixtures"
PAGES = {
    "vllm": ("vllm/metrics/dense_ngram_k4.txt", "vllm:"),
    "sglang": ("sglang/metrics_c16_during.txt", "sglang:"),
    "llamacpp": ("llamacpp/metrics_spec.txt", "llamacpp:"),
}
ANSWERS = {
    "vllm_server_info": "vllm/server_info/moe_mtp_k1.json",
    "vllm_models": "vllm/answers/v1_models.json",
    "sglang_server_info": "sglang/server_info_c16.json",
    "sglang_loads": "sglang/v1_loads_dp2_during.json",
    "llamacpp_slots": "llamacpp/slots_loaded.txt",
    "llamacpp_props": "llamacpp/props.txt",
    "llamacpp_models": "llamacpp/v1_models.txt",
}
DEPTH = 4  # the simulator goes no deeper
STREAMS = {
    "vllm_chat.txt": "vllm/sse/chat.txt",
    "vllm_completions.txt": "vllm/sse/completions_continuous_usage.txt",
    "vllm_dead_engine.txt": "vllm/sse/engine_dies_mid_stream.txt",
    "llamacpp_chat.txt": "llamacpp/sse_chat.txt",
    "llamacpp_completions.txt": "llamacpp/sse_completions.txt",
    "llamacpp_native.txt": "llamacpp/sse_completion_native.txt",
}


def body(text: str) -> str:
    """A capture without its status line."""
    return text.split("\n", 1)[1] if text.startswith("HTTP ") else text


def shapes(samples: Path) -> dict[str, Any]:
    """The shapes of all captured pages and answers."""
    made: dict[str, Any] = {}
    for name, (file, prefix) in PAGES.items():
        page = families(body((samples / file).read_text()))
        wanted = [key for key in sorted(page) if key.startswith(prefix) and not key.endswith("_created")]
        made[f"{name}_metrics"] = {key: page[key] for key in wanted}
        if name == "vllm":
            made["vllm_metrics"]["process_start_time_seconds"] = page["process_start_time_seconds"]
    for name, file in ANSWERS.items():
        known = paths(json.loads(body((samples / file).read_text())))
        made[name] = sorted(path for path in known if path.count(".") <= DEPTH and not _told_elsewhere(path, known))
    return made


def _told_elsewhere(path: str, known: set[str]) -> bool:
    """Whether a path repeats another: a rank's copy of the arguments, a draft model's of the target's, variables."""
    return path.removeprefix(".internal_states[]") in known - {path} or path.startswith(
        (".vllm_env.", ".vllm_config.speculative_config.target_", ".vllm_config.speculative_config.draft_model")
    )


def main(samples: Path) -> None:
    """Write the fixtures."""
    FIXTURES.mkdir(exist_ok=True)
    (FIXTURES / "shapes.json").write_text(
        json.dumps(shapes(samples), separators=(",", ":"), sort_keys=True).replace("},", "},\n") + "\n"
    )
    for name, file in STREAMS.items():
        shutil.copyfile(samples / file, FIXTURES / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
