"""Records and rules to verdicts, gates and a recommended recipe."""
