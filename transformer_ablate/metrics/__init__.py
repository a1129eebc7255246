"""What a reader is told about a number: title, unit, direction, where it is shown."""
