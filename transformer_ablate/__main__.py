"""``python -m transformer_ablate``: see :mod:`transformer_ablate.cli.door`."""

import sys

from transformer_ablate.cli.door import enter

if __name__ == "__main__":
    sys.exit(enter(sys.argv[1:], "transformer_ablate"))
