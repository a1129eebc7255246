"""transformer-ablate: which Transformer design choice matters, measured with seeds, intervals and verdicts."""

__version__ = "0.1.0"
