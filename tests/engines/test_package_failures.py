"""The root cause of an ended server is found above its generic last line, and its kind is told by real texts."""

from __future__ import annotations

import pytest

from lab.engines import _failure_texts, _sglang_failures, _vllm_failures

STAMP = "11-30 21:50:40 [multiproc_executor.py:1063]"
WORKER, CORE, FRONT = (f"({name} pid=7) ERROR {STAMP} " for name in ("Worker_TP0", "EngineCore", "APIServer"))
GENERIC = (
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}\n"
)
SIGQUIT = "[2026-11-30 21:01:24] Received sigquit from a child process. It usually means the child failed.\n"


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "out-of-memory"),
        ("ValueError: No available memory for the cache blocks. Try increasing it", "out-of-memory"),
        ("ValueError: Free memory on device is less than desired GPU memory utilization", "out-of-memory"),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "out-of-memory"),
        ("ValueError: Model architectures ['New'] are not supported for now.", "unsupported"),
        ("NotImplementedError: FP8 KV cache on CPU requires x86 with AVX-512 or AMX.", "unsupported"),
        ("OSError: [Errno 98] Address already in use", "port-in-use"),
        ("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:94, unhandled system error", "nccl"),
        ("OSError: [Errno 28] No space left on device: '/dev/shm/psm_1'", "shared-memory"),
        ("RuntimeError: Error: could not find the cubin for sm_120a", "missing-cubin"),
        ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "missing-cubin"),
        ("TimeoutError: RPC call to execute_model timed out.", "hang"),
        ("huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate folder", "missing-checkpoint"),
        ("AssertionError: a text that nobody knows", "crashed"),
    ],
)
def test_a_cause_names_its_kind(cause: str, kind: str) -> None:
    assert _failure_texts.kind_of(cause) == kind
    log = f"{CORE}RuntimeError: Worker failed with error 'x', please check\n{WORKER}{cause}\n{GENERIC}"
    found = _vllm_failures.failure(log, 1)
    assert (found.kind, found.reason) == (kind, cause)
    log = (
        f"[2026-11-30 21:01:24 TP0] Scheduler hit an exception: Traceback (most recent call last):\n{cause}\n{SIGQUIT}"
    )
    found = _sglang_failures.failure(log, -9)
    assert (found.kind, found.reason) == (kind, cause)


def test_vllms_worker_comes_before_its_core_and_the_core_before_the_front_end() -> None:
    log = f"ValueError: front\n{CORE}ValueError: core\n{WORKER}ValueError: worker\n"
    assert _vllm_failures.failure(log, 1).reason == "ValueError: worker"
    assert _vllm_failures.failure(log.replace(WORKER, FRONT), 1).reason == "ValueError: core"
    assert _vllm_failures.failure("ValueError: front\n", 1).reason == "ValueError: front"


def test_a_refused_command_line_is_a_bad_flag() -> None:
    log = "usage: vllm serve [options]\nvllm serve: error: argument --kv-cache-dtype: invalid choice: 'int3'\n"
    found = _vllm_failures.failure(log, 2)
    assert (found.kind, found.reason) == ("bad-flag", "argument --kv-cache-dtype: invalid choice: 'int3'")
    log = "launch_server.py: error: unrecognized arguments: --enable-ep-moe\n"
    assert _sglang_failures.failure(log, 2).kind == "bad-flag"


def test_what_pydantic_refuses_is_told_in_its_words() -> None:
    words = "User-specified max_model_len (9) is greater than the derived max_model_len (4)."
    log = (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
        f"  Value error, {words} [type=value_error, input_value=ArgsKwargs(())]\n"
    )
    found = _vllm_failures.failure(log, 1)
    assert (found.kind, found.reason) == ("unsupported", words)
    log = (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig\n"
        "acceptance\n  Unexpected keyword argument [type=unexpected_keyword_argument, input_value=0.5]\n"
    )
    found = _vllm_failures.failure(log, 1)
    assert (found.kind, found.reason) == ("bad-flag", "acceptance: Unexpected keyword argument")


def test_a_crash_of_a_worker_is_named_with_its_frame() -> None:
    log = (
        '!!!!!!! Segfault encountered !!!!!!!\n  File "fused_moe.cpp", line 242, in fused_moe\n'
        f"{CORE}Worker proc VllmWorker-0 died unexpectedly (exit code: -11), shutting down executor.\n"
        f"{CORE}RuntimeError: cancelled\n"
    )
    found = _vllm_failures.failure(log, 0)
    assert found.kind == "crashed"
    assert (
        found.reason
        == 'Worker proc VllmWorker-0 died unexpectedly (exit code: -11) in "fused_moe.cpp", line 242, in fused_moe'
    )


def test_a_worker_that_was_ended_with_the_rest_is_no_cause() -> None:
    log = f"{CORE}ValueError: too small\n{CORE}Worker proc VllmWorker-0 died unexpectedly (exit code: None)\n"
    assert _vllm_failures.failure(log, 1).reason == "ValueError: too small"


def test_a_dead_engine_is_told_from_an_orderly_stop() -> None:
    dead = f"{CORE}EngineCore encountered a fatal error.\n"
    assert _vllm_failures.engine_died(dead)
    assert not _vllm_failures.engine_died(
        f"(APIServer pid=1) INFO {STAMP} shutdown triggered\n{FRONT}EngineDeadError\n"
    )
    assert not _vllm_failures.engine_died(f"(APIServer pid=1) INFO {STAMP} Application startup complete.\n")


def test_models_that_nobody_asked_for_are_no_cause() -> None:
    harmless = "[2026-11-30 21:01:23] Ignore import error when loading sglang.srt.models.grok: ImportError: cutlass\n"
    found = _sglang_failures.failure(f"{harmless}{SIGQUIT}", -9)
    assert (found.kind, found.reason.startswith("killed by SIGKILL; last line: ")) == ("crashed", True)


def test_a_scheduler_that_hangs_is_a_hang() -> None:
    log = (
        f"[2026-11-30 21:01:24 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)\n{SIGQUIT}"
    )
    assert _sglang_failures.failure(log, -9).kind == "hang"


def test_colours_and_ranks_do_not_hide_a_cause() -> None:
    log = (
        "\x1b[31m[2026-11-30 21:01:24 DP0 TP1] Scheduler hit an exception: Traceback (most recent call last):\x1b[0m\n"
        '  File "x.py", line 1, in y\n    raise ValueError("TypeError: no")\nValueError: is not supported here\n'
    )
    assert _sglang_failures.failure(log, -9).reason == "ValueError: is not supported here"
    log = f"\x1b[0;36m(Worker pid=7)\x1b[0;0m \x1b[31mERROR\x1b[0m \x1b[90m{STAMP}\x1b[0m ValueError: coloured\n"
    assert _vllm_failures.failure(log, 1).reason == "ValueError: coloured"


@pytest.mark.parametrize("failure", [_vllm_failures.failure, _sglang_failures.failure])
def test_a_log_without_a_cause_tells_how_it_ended(failure: object) -> None:
    found = failure("the last line\n", 0)  # type: ignore[operator]
    assert (found.kind, found.reason) == ("crashed", "exit code 0; last line: the last line")
    assert "it wrote nothing" in failure("", -11).reason  # type: ignore[operator]
    assert "killed by SIGSEGV" in failure("", -11).reason  # type: ignore[operator]
