"""A small web server whose pages a test names: readers are tested over real HTTP."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"


class Web:
    """`with Web({"/path": body, "/other": (status, body)}) as web:` answers GET and POST; other paths are 404, as is
    `base` left out. Bodies that are not text are sent as JSON; `key` asks for that bearer key on every path but
    `open_paths`."""

    def __init__(
        self, pages: dict[str, Any], base: str = "", key: str | None = None, open_paths: tuple[str, ...] = ()
    ) -> None:
        self.pages = dict(pages)
        self.asked: list[str] = []
        self.bodies: list[Any] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, base, key, open_paths))
        self.url = f"http://127.0.0.1:{self._server.server_port}{base}"

    def __enter__(self) -> Web:
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(web: Web, base: str, key: str | None, open_paths: tuple[str, ...]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            web.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.do_GET()

        def do_GET(self) -> None:
            web.asked.append(self.path)
            path = self.path.removeprefix(base) if self.path.startswith(base) else "/somewhere/else"
            page = web.pages.get(path, (404, {"detail": "Not Found"}))
            status, body = page if isinstance(page, tuple) else (200, page)
            if key and path not in open_paths and self.headers["Authorization"] != f"Bearer {key}":
                status, body = 401, {"error": "Unauthorized"}
            content = (body if isinstance(body, str) else json.dumps(body)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def text(name: str) -> str:
    """A captured page."""
    return (DATA / name).read_text()


def content(name: str) -> Any:
    """A captured JSON answer."""
    return json.loads(text(name))


def sglang(**changes: Any) -> dict[str, Any]:
    """The pages of a captured SGLang 0.5.23 server; `changes` by path, None takes a page away."""
    models = {"object": "list", "data": [{"id": "/models/tiny", "owned_by": "sglang", "max_model_len": 4096}]}
    pages = {
        "/v1/models": models,
        "/metrics": text("sglang_metrics_c16.txt"),
        "/server_info": content("sglang_server_info.json"),
        "/v1/loads": content("sglang_v1_loads_idle.json"),
        "/ready": "",
        "/model_info": {"model_path": "/models/tiny"},
    }
    return {path: page for path, page in {**pages, **changes}.items() if page is not None}


def vllm(**changes: Any) -> dict[str, Any]:
    """The pages of a captured vLLM 0.32.0 server in developer mode."""
    pages = {
        "/v1/models": content("vllm_v1_models.json"),
        "/metrics": text("vllm_metrics_ngram.txt"),
        "/server_info?config_format=json": content("vllm_server_info_ngram.json"),
        "/version": content("vllm_version.json"),
        "/health": "",
    }
    return {path: page for path, page in {**pages, **changes}.items() if page is not None}
