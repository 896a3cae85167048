"""MLflow: a copy of the results for browsing, which can be thrown away and rebuilt from the files.

Without a copy that is made after the measurement, from files, a dead tracking server costs server hours, and a run
that nobody closed stays RUNNING for ever. `publish` is the only door to MLflow; `ui` serves what it wrote.
"""

from lab.tracking.publish import Published, publish
from lab.tracking.ui import ui

__all__ = ["Published", "publish", "ui"]
