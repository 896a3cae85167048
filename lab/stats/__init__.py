"""Effects with honest intervals. Without it, a lucky server start would pass for an improvement."""

from lab.stats.compare import Effect, compare
from lab.stats.planning import passes_needed
from lab.stats.sequential import Judgement, judge

__all__ = ["Effect", "Judgement", "compare", "judge", "passes_needed"]
