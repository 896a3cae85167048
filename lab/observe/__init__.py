"""The server's and the machine's own account of a trial.

Without it the only witness of a measurement is the client, and a client cannot know what the server really
ran.
"""

from lab.observe.gpus import local_gpus
from lab.observe.machine import describe_machine
from lab.observe.timeline import IdleLook, idle_look, watch

__all__ = ["IdleLook", "describe_machine", "idle_look", "local_gpus", "watch"]
