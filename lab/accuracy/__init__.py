"""Are the answers still right? A short probe of a running server, and the paired test of two arms.

Without it a lever that corrupts answers is adopted for its speed.
"""
