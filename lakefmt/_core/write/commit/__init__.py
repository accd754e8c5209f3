"""Bringing a write to its end.

``transaction`` begins, completes and aborts the instant; ``conflict_resolution`` looks for conflicts under the table lock
and ``retry`` repeats a write that lost. ``key_stats`` are key ranges and hashes that commits carry for that.
"""
