"""Plans to finished runs and their reports: rounds, processes, progress."""
