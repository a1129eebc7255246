"""Studies: each file declares one, and ``python -m experiments.NAME`` runs it."""
