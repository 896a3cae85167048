"""A serving engine whose every property is known, because it was decided beforehand.

Without a server of known truth nobody can show that the lab measures right: on a real engine a wrong figure and a
surprising one look the same. `truth.Truth` says what the server really is, `scheduler` is the pure model of an
engine, `server` speaks HTTP in the dialect of SGLang, vLLM or llama.cpp, `journal` keeps what really happened.

By hand: `python -m lab.simulator --truth truth.json` prints `LISTEN http://127.0.0.1:PORT`.
"""

from __future__ import annotations

__all__ = ["VERSION"]

VERSION = "1"
"""Changes when the same truth would give other figures."""
