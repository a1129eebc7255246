"""Statistics of per-seed numbers: pure functions, without a word about studies, records or pages."""
