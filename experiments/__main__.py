"""``python -m experiments`` lists the studies; ``python -m experiments run all|NAME... [options]`` runs several."""

import sys

from experiments import discover
from transformer_ablate.cli.door import enter

if __name__ == "__main__":
    sys.exit(enter(sys.argv[1:], "experiments", discover))
