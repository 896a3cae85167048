"""A package that passes for vLLM or SGLang: a command line and a server of the standard library, started for real.

Options, log lines and pages have the forms of the real ones; what it does is told by variables of its environment.
"""

from __future__ import annotations

from pathlib import Path

MODULES = {"vllm": "entrypoints/cli/main.py", "sglang": "launch_server.py"}
CONFIG = """{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 64, "hidden_size": 32,
"intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
"max_position_embeddings": 128, "torch_dtype": "bfloat16"}"""

_SOURCE = """
import argparse, http.server, json, os, pathlib, sys

print("this package is imported")


def parser():
    top = argparse.ArgumentParser(prog="vllm")
    serve = top
    if "vllm" in __file__:
        serve = top.add_subparsers(dest="command").add_parser("serve")
        serve.add_argument("model_tag")
    else:
        serve.add_argument("--model-path", "--model", required=True)
        serve.add_argument("--enable-metrics", action="store_true")
    serve.add_argument("--host")
    serve.add_argument("--port", type=int)
    serve.add_argument("--served-model-name", nargs="*" if serve is not top else None)
    serve.add_argument("--api-key")
    serve.add_argument("--max-num-seqs", type=int)
    serve.add_argument("--gpu-memory-utilization", type=float)
    serve.add_argument("--kv-cache-dtype", choices=["auto", "fp8"])
    serve.add_argument("--enable-prefix-caching", action=argparse.BooleanOptionalAction)
    serve.add_argument("--trust-remote-code", action="store_true")
    serve.add_argument("--speculative-config", "-sc", type=json.loads)
    serve.add_argument("--cudagraph-capture-sizes", type=int, nargs="+")
    serve.add_argument("--middleware", action="append")
    serve.add_argument("--load-format")
    return top


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or "{}")
        if os.environ.get("FAKE_DIES_WHEN_ASKED"):
            print("EngineCore encountered a fatal error.\\nRuntimeError: NCCL error: unhandled", flush=True)
            os._exit(0)
        self.answer({"model": body.get("model"), "usage": {"completion_tokens": 4}, "success": True})

    def do_GET(self):
        self.answer({"data": []})

    def answer(self, page):
        text = json.dumps(page).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def main():
    told = parser().parse_args()
    tries = os.environ.get("FAKE_TAKEN_PORTS_FILE")
    if tries and int(pathlib.Path(tries).read_text()):
        left = int(pathlib.Path(tries).read_text()) - 1
        pathlib.Path(tries).write_text(str(left))
        print("Traceback (most recent call last):\\nOSError: [Errno 98] Address already in use", flush=True)
        sys.exit(1)
    server = http.server.ThreadingHTTPServer((told.host, told.port), Handler)
    shown = {key: os.environ.get(key) for key in ("VLLM_STRAY", "OMP_NUM_THREADS", "HF_HUB_OFFLINE", "VLLM_CACHE_ROOT")}
    print("ENVIRONMENT", json.dumps(shown), flush=True)
    print("INFO:     Application startup complete.\\nThe server is fired up and ready to roll!", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
"""


def package(folder: Path, name: str = "vllm") -> Path:
    """Write the package `name` into a folder for `runtime.path`, and answer with the folder."""
    module = folder / name / MODULES[name]
    for part in (module.parent, *module.parent.relative_to(folder).parents):
        place = folder / part
        place.mkdir(parents=True, exist_ok=True)
        if place != folder:
            (place / "__init__.py").touch()
    module.write_text(_SOURCE)
    (folder / name / "envs.py").write_text('environment_variables = {"VLLM_CPU_OMP_THREADS_BIND": None}\n')
    return folder


def model(folder: Path) -> Path:
    """Write a model folder without weights, and answer with it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(CONFIG)
    return folder
