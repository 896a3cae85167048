"""Offering load and reading the answers.

Without a room of its own the load generator shares a process with notebooks and plots, and its pauses look
like the server's.
"""

from lab.load.client_process import LoadFailed
from lab.load.drive import Measured, drive
from lab.load.target import Target
from lab.load.workload import PROMPT_COUNT, Prompts, build

__all__ = ["PROMPT_COUNT", "LoadFailed", "Measured", "Prompts", "Target", "build", "drive"]
