"""Long jobs: plans of units, the runner that makes them, journals and records of unfinished work."""
