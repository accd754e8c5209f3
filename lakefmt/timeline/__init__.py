"""The timeline: instants, their states and bodies, conflicts, locks, archive."""
