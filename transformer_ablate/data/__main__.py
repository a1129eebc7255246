"""``python -m transformer_ablate.data --source FILE``: what to know of a corpus before training on it."""

from __future__ import annotations

import sys

from transformer_ablate.data.corpus_report import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
