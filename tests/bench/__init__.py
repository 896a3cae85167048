"""Benches of the load client: `python -m tests.bench.ruler`, `.client` and `.record` print figures, assert nothing.

Without them a change that makes the reader slow or late is found in somebody's latencies.
"""
