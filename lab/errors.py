"""Errors that a person reads: one line each, and the exit code they end the program with.

Without one family of errors, bad input surfaces as a traceback and scripts cannot tell it from a failed run.
"""

from __future__ import annotations

import sys


class LabError(Exception):
    """Something went wrong that the reader can act on; the message is one line."""

    exit_code = 1


class InputError(LabError):
    """The user's file, flag or environment is wrong; nothing was started or written."""

    exit_code = 2


class DiskFullError(LabError):
    """A record could not be written because the disk is full."""

    exit_code = 3


def say(text: str) -> None:
    """One line for people, on standard error."""
    print(text, file=sys.stderr, flush=True)
