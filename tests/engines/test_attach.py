"""What answers at a URL is recognised, or refused in one line that says what to do."""

from __future__ import annotations

import functools
import http.server
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import engines
from lab.engines import base
from lab.engines.attach import address, recognise
from lab.engines.server import Fact, Server
from lab.errors import InputError
from tests.engines import web
from tests.engines.web import Web

FIXTURES = Path(__file__).parent / "fixtures"


def llamacpp(**changes: Any) -> dict[str, Any]:
    """The pages of a captured llama.cpp server under load."""
    slots = json.loads((FIXTURES / "slots_loaded.txt").read_text().partition("\n")[2])
    props = {"default_generation_settings": {"n_ctx": 1024}, "total_slots": 2, "model_path": "/models/m.gguf"}
    pages = {
        "/v1/models": {"data": [{"id": "smollm2", "owned_by": "llamacpp", "meta": {"size": 9, "ftype": "Q4_1"}}]},
        "/metrics": (FIXTURES / "metrics_loaded.txt").read_text(),
        "/slots": slots,
        "/props": props,
        "/health": {"status": "ok"},
    }
    return {path: page for path, page in {**pages, **changes}.items() if page is not None}


PAGES = {"sglang": web.sglang, "vllm": web.vllm, "llamacpp": llamacpp}
MODELS = {"sglang": "/models/tiny", "vllm": "m", "llamacpp": "smollm2"}


def refusal(url: str, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        recognise(url, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("engine", PAGES)
@pytest.mark.parametrize("clue", ["all", "no metrics", "no owner"])
def test_each_engine_is_recognised_by_any_of_its_clues(engine: str, clue: str) -> None:
    pages = PAGES[engine]()
    if clue == "no metrics":
        pages = {path: page for path, page in pages.items() if path != "/metrics"}
    if clue == "no owner":
        pages["/v1/models"]["data"][0]["owned_by"] = "proxy"
        pages["/metrics"] = "up 1\n"
    with Web(pages) as server:
        found = recognise(server.url)
        assert (found.engine, found.model, found.url) == (engine, MODELS[engine], server.url)
        assert engines.readers()[found.engine].name == engine
        assert found.missing if clue == "no metrics" else True


@pytest.mark.parametrize("engine", PAGES)
def test_a_path_before_the_api_and_a_trailing_slash_are_understood(engine: str) -> None:
    with Web(PAGES[engine](), base="/llm/a") as server:
        for end in ("", "/", "/v1", "/v1/", "/v1/chat/completions", "/v1/completions/", "/v1/models"):
            found = recognise(server.url + end)
            assert found.url == server.url
        found.sample()
        found.describe()
        host = server.url.removeprefix("http://").partition("/")[0]
        assert "none of llamacpp, sglang, vllm" in refusal(f"http://{host}")
        assert recognise(f"{host}/llm/a").engine == engine


@pytest.mark.parametrize("engine", PAGES)
def test_a_key_goes_along_with_every_request_and_is_kept_nowhere(engine: str) -> None:
    open_paths = ("/health", "/ready", *(("/metrics",) if engine != "llamacpp" else ()))
    with Web(PAGES[engine](), key="S3CRET", open_paths=open_paths) as server:
        assert refusal(server.url).endswith(
            "the server wants a key; --key-env names the variable that holds it (status 401)"
        )
        wrong = {"Authorization": "Bearer other"}
        assert "the server refused the key or password that it got (status 401)" in refusal(server.url, headers=wrong)
        assert "the server refused the key in MY_KEY (" in refusal(server.url, headers=wrong, key_from="MY_KEY")
        found = recognise(server.url, {"Authorization": "Bearer S3CRET"})
        facts = found.describe()
        found.sample()
        assert found.alive()
    kept = [repr(found), found.env, found.argv, found.url, found.missing, [(f.value, f.source) for f in facts.values()]]
    assert "S3CRET" not in json.dumps(kept)


def test_a_password_in_the_url_becomes_a_header() -> None:
    with Web(web.vllm()) as server:
        found = recognise(server.url.replace("http://", "http://me:p%40ss@"))
    assert found.url == server.url
    assert found.headers == {"Authorization": "Basic bWU6cEBzcw=="}


def test_an_attached_server_is_never_ended() -> None:
    with Web(web.vllm()) as server:
        with recognise(server.url) as found:
            assert found.attached
            assert (found.pid, found.started_at, found.log_text()) == (None, None, "")
        assert found.stop() is None
        assert found.exit is None
        assert found.alive()


def test_of_several_models_the_first_is_taken_or_the_one_asked_for() -> None:
    pages = web.vllm()
    pages["/v1/models"]["data"].append({"id": "m-lora", "owned_by": "vllm"})
    with Web(pages) as server:
        assert recognise(server.url).model == "m"
        assert recognise(server.url, model="m-lora").model == "m-lora"
        assert refusal(server.url, model="m-lara").endswith("model 'm-lara' is not served; did you mean 'm-lora'?")
        assert refusal(server.url, model="zzz").endswith("model 'zzz' is not served; known: m, m-lora")


def test_where_nothing_listens_that_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert refusal(f"http://127.0.0.1:{port}").startswith(f"http://127.0.0.1:{port}: nothing listens there")


def test_a_name_without_an_address_is_told_from_a_closed_port() -> None:
    assert "no such host: " in refusal("http://no-such-host.invalid:8000")


def test_a_server_that_does_not_answer_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert refusal(url, timeout=0.2) == f"{url}: no answer within 0.2 s; is the server loading or hanging?"


def test_plain_http_under_https_is_said() -> None:
    with Web(web.vllm()) as server:
        assert "it speaks no https" in refusal(server.url.replace("http://", "https://"))


@pytest.mark.parametrize("url", ["", "ftp://host", "http://", "http://host:port", "http://host/?x=1", "http://h:99999"])
def test_what_is_no_address_is_refused(url: str) -> None:
    assert refusal(url).startswith("url: '")


@pytest.mark.parametrize("host", ["a" * 300, "a" * 64, "a..b", "a b", "☃", "a\0b", ".".join(["a" * 60] * 5)])
def test_a_host_that_cannot_be_is_refused_in_a_short_line(host: str) -> None:
    said = refusal(f"http://{host}:80/v1")
    assert "is no address: no host can be called '" in said and len(said) < 300


@pytest.mark.parametrize(
    "host", ["a" * 63, "127.0.0.1", "[::1]", "gpu_node-1.example.org.", "münchen.example", "localhost"]
)
def test_a_host_that_could_be_is_an_address(host: str) -> None:
    assert address(f"http://{host}:80/v1")[0] == f"http://{host}:80"


def test_an_address_of_thousands_of_letters_is_refused_in_a_short_line() -> None:
    said = refusal("http://localhost/" + "a" * 5000)
    assert said.endswith("(5017 characters) is longer than 500 characters") and len(said) < 200


def test_a_long_password_makes_no_address_long() -> None:
    _, headers = address(f"http://me:{'p' * 2000}@localhost:80")
    assert headers["Authorization"].startswith("Basic ")


def test_a_loading_server_is_no_unknown_one() -> None:
    loading = {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}
    with Web({"/v1/models": (503, loading), "/health": (503, loading)}) as server:
        assert "still loading" in refusal(server.url)


@pytest.mark.parametrize(("engine", "path"), [("vllm", "/health"), ("sglang", "/ready"), ("llamacpp", "/health")])
def test_a_server_that_cannot_serve_is_not_measured(engine: str, path: str) -> None:
    with Web(PAGES[engine](**{path: (503, "")})) as server:
        assert f"a {engine} server answers but says at {path} that it cannot serve" in refusal(server.url)


@pytest.fixture
def file_server(tmp_path: Path) -> Iterator[str]:
    """Python's own web server: it answers, and is no engine."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_what_is_no_engine_is_refused_naming_what_was_tried(file_server: str) -> None:
    text = refusal(file_server)
    assert "none of llamacpp, sglang, vllm (tried /v1/models owned_by, /metrics, " in text
    assert "/server_info" in text


def test_a_page_of_json_that_is_no_object_is_no_engine() -> None:
    for page in ([], "text", {"data": None}, {"data": ["m"]}, {"data": 7}, {"data": [{"id": 7}]}, 7):
        with Web({"/v1/models": page, "/props": page, "/metrics": "x 1\n"}) as server:
            assert "none of" in refusal(server.url)


def test_llamacpp_without_metrics_still_counts_its_busy_slots() -> None:
    off = (501, {"error": {"code": 501, "message": "This server does not support metrics endpoint."}})
    with Web(llamacpp(**{"/metrics": off})) as server:
        found = recognise(server.url)
        sample = found.sample()
        assert found.missing[0] == "gauges and counters: start llama.cpp with --metrics"
    assert (sample.running, sample.waiting, sample.counters) == (2, None, {})
    with Web(llamacpp(**{"/metrics": off, "/slots": off})) as server:
        found = recognise(server.url)
        assert found.missing[1] == "use of the cache: start llama.cpp with --slots"
        sample, facts = found.sample(), found.describe()
    assert (sample.running, sample.waiting, sample.kv_usage) == (None, None, None)
    assert (facts["cap"].value, facts["cap_source"]) == (2, Fact("its slots, --parallel", "/props total_slots"))
    assert facts["cap_flag"].value == "--parallel"
    assert facts["context_tokens"].value == 1024
    assert facts["speculative"].value is None


def test_llamacpp_counts_cached_tokens_as_hits_and_drafts_by_position() -> None:
    with Web(llamacpp(**{"/metrics": (FIXTURES / "metrics_spec.txt").read_text()})) as server:
        counters = recognise(server.url).sample().counters
    assert (counters["drafts"], counters["draft_tokens"], counters["draft_accepted"]) == (58, 224, 81)
    assert [counters[f"draft_accepted_at_{position}"] for position in range(4)] == [34, 22, 13, 12]
    assert (counters["prefix_queries"], counters["prefix_hits"]) == (21, 0)
    assert "requests_finished" not in counters


def test_readers_that_cannot_be_started_are_no_engines_of_a_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(base.READERS, "read-only", engines.readers()["vllm"])
    assert {"read-only", "sglang", "vllm"} <= engines.readers().keys()
    assert {"sglang", "vllm"} <= set(engines.names())
    assert "read-only" not in engines.names()
    with pytest.raises(InputError, match="the lab cannot start read-only servers yet; for a running one: lab check"):
        engines.get("read-only")


@pytest.mark.parametrize("engine", PAGES)
def test_a_reader_says_how_its_tokens_are_counted(engine: str) -> None:
    reader = engines.readers()[engine]
    assert reader.chunk_tokens_path
    assert reader.chunk_tokens_path[-1] in reader.window_tokens_source
    assert {"chat", "completions"} <= set(reader.apis)
    assert issubclass(reader.server, Server)


def test_counts_in_every_chunk_are_asked_for_where_the_api_has_the_field() -> None:
    asked = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    assert engines.readers()["vllm"].request_extras() == asked
    assert engines.readers()["sglang"].request_extras("completions") == asked
    assert engines.readers()["sglang"].request_extras("generate") == {}


@pytest.mark.parametrize("key", ["S3CRET\n", "S3CRET\r\nX: y"])
def test_a_key_that_cannot_be_sent_is_not_shown(key: str) -> None:
    with Web({}) as server:
        said = refusal(server.url, headers={"Authorization": f"Bearer {key}"})
    assert said == f"{server.url}: a header cannot be sent as it is; a key is one line of plain characters"


def test_a_password_in_an_address_is_not_shown() -> None:
    with pytest.raises(InputError) as caught:
        recognise("ftp://me:p/ss@127.0.0.1:9")
    assert "p/ss" not in str(caught.value)
