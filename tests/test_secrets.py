"""Secrets never reach a record, and harmless names stay."""

from __future__ import annotations

import base64
import html
import json
import time
from urllib.parse import quote

import pytest

from lab.secrets import HIDDEN, concealed, in_headers, redacted, redacted_text


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "HF_TOKENS", "hf_token", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "PRIVATE_KEY", "api_keys"),
        *("PASSWD", "DB_PASSWORD", "Authorization", "credentials", "PGPASS", "auth"),
    ],
)
def test_a_value_under_a_secrets_name_is_removed_at_any_depth(name: str) -> None:
    assert redacted({"server": [{"env": {name: "s3cr3t"}}]}) == {"server": [{"env": {name: HIDDEN}}]}


@pytest.mark.parametrize("name", ["output_tokens", "eos_token", "max_tokens", "draft_tokens", "n_parallel", "monkey"])
def test_a_harmless_name_keeps_its_value(name: str) -> None:
    assert redacted({name: 4}) == {name: 4}


def test_user_and_password_of_a_url_are_removed_wherever_it_stands() -> None:
    said = redacted({"proxy": "http://me:pw@host:8080/x", "plain": "http://host/x"})
    assert said == {"proxy": f"http://{HIDDEN}@host:8080/x", "plain": "http://host/x"}


def test_an_empty_value_is_no_secret() -> None:
    assert redacted({"HF_TOKEN": ""}) == {"HF_TOKEN": ""}


def test_a_number_of_tokens_is_no_secret_whatever_kind_of_tokens() -> None:
    counts = {"max_total_tokens": 32768, "max_num_batched_tokens": "8192", "num_reserved_decode_tokens": 512}
    assert redacted(counts) == counts
    assert redacted({"api_tokens": "hf_1", "pin_password": 1234}) == {"api_tokens": HIDDEN, "pin_password": HIDDEN}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--api-key s3cr3t --port 1", f"--api-key {HIDDEN} --port 1"),
        ("--admin-api-key=s3cr3t", f"--admin-api-key={HIDDEN}"),
        ("--ssl-keyfile-password 's3 cr3t' -x", f"--ssl-keyfile-password {HIDDEN} -x"),
        ("serve --enable-metrics --api-key s3cr3t", f"serve --enable-metrics --api-key {HIDDEN}"),
        ("HF_TOKEN=s3cr3t python -m x", f"HF_TOKEN={HIDDEN} python -m x"),
        ("{'api_key': 's3cr3t', 'tp_size': 1}", f"{{'api_key': {HIDDEN}, 'tp_size': 1}}"),
        ('{"hf_token": "s3cr3t"}', f'{{"hf_token": {HIDDEN}}}'),
        ("--proxy http://me:s3cr3t@host/x", f"--proxy http://{HIDDEN}@host/x"),
    ],
)
def test_secrets_in_a_command_line_or_a_log_are_removed(text: str, expected: str) -> None:
    assert redacted_text(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "--max-total-tokens 32768 --tokenizer-path /m --enable-metrics --api-key",
        "{'api_key': None, 'max_prefill_tokens': 16384, 'tokenizer_mode': 'auto'}",
        "[12:00:00] Decode batch, #token: 136, token usage: 0.00, #queue-req: 12",
    ],
)
def test_a_harmless_text_stays_as_it_is(text: str) -> None:
    assert redacted_text(text) == text


KEY = 'sk-SECRET+12/34"5&6_abc'
FORMS = {
    "plain": KEY,
    "json": json.dumps(KEY),
    "json, every character": "".join(f"\\u{ord(one):04x}" for one in KEY),
    "json, one character": KEY.replace("-", "\\u002D"),
    "json inside json": json.dumps(json.dumps(KEY.replace("+", "é"))).replace("\\\\u00e9", "\\\\u002b"),
    "python": KEY.replace("-", "\\x2d"),
    "url": quote(KEY, safe=""),
    "url, twice": quote(quote(KEY, safe=""), safe=""),
    "html": html.escape(KEY),
    "html numbers": "".join(f"&#{ord(one)};" for one in KEY),
    **{f"base64 after {n}": base64.b64encode(b"x" * n + KEY.encode() + b"yy").decode() for n in range(3)},
    "base64 for urls": base64.urlsafe_b64encode(f"Bearer {KEY}".encode()).decode(),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_value_is_concealed_in_every_form(form: str) -> None:
    said = concealed(f"it is {form}.", [KEY])
    assert HIDDEN in said
    assert len(said) <= len(f'it is "\\\\""\\{HIDDEN}".') + 8
    assert not any(part in said for part in ("SECRET", "sk-", "abc", "34", "U0VDUkVU"))


def test_only_the_value_is_concealed() -> None:
    assert concealed("key sk-12345678 of 12345678", ["sk-12345678"]) == f"key {HIDDEN} of 12345678"
    assert concealed("nothing here", []) == concealed("nothing here", [""]) == "nothing here"


@pytest.mark.parametrize("before", range(280, 302))
def test_a_value_across_the_end_of_what_is_shown_is_concealed_before_the_cut(before: int) -> None:
    said = concealed("x" * before + KEY + "y" * 500, [KEY], 300)
    assert said == ("x" * before + HIDDEN + "y" * 500)[:300]


def test_a_text_of_nothing_but_values_shows_none() -> None:
    escaped = "".join(f"%{ord(one):02x}" for one in KEY)
    assert set(concealed(escaped * 3000, [KEY], 300)) <= set(HIDDEN)


def test_the_beginning_of_a_long_text_takes_no_longer_than_that_of_a_short_one() -> None:
    began_s = time.process_time()
    assert concealed("\\" * 50_000_000, [KEY], 300) == "\\" * 300
    assert time.process_time() - began_s < 1


def test_secrets_of_headers_are_their_long_words_and_passwords() -> None:
    pair = base64.b64encode(b"me:pass-word").decode()
    assert in_headers({"Authorization": "Bearer sk-1"}) == {"sk-1"}
    assert in_headers({"Authorization": f"Basic {pair}"}) == {pair, "me:pass-word", "pass-word"}
    assert in_headers({"X-Api-Key": "abcd", "X-Mode": "fast", "X-Session": "a 123456789"}) == {"abcd", "123456789"}
    assert in_headers({"Authorization": "Basic ???"}) == frozenset()
