"""Names of measures that planning must know without importing them."""

# They time things and are run with nothing beside them.
EXCLUSIVE = frozenset({"throughput"})
