"""Effects with honest intervals. Without it, a lucky server start would pass for an improvement."""

from lab.stats.compare import Effect, compare
from lab.stats.planning import passes_needed, smallest_effect_pct

__all__ = ["Effect", "compare", "passes_needed", "smallest_effect_pct"]
