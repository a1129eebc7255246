"""``python -m transformer_ablate.cli``: every component with what it does, its source and its cost."""

from __future__ import annotations

import shutil

from rich.console import Console

from transformer_ablate.cli.components import print_catalogue

# A table narrower than this would break every word; a pipe has no width of its own.
NARROWEST = 140

print_catalogue(Console(width=max(NARROWEST, shutil.get_terminal_size((NARROWEST, 24)).columns)))
