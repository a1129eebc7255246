"""The one door: the command line."""
