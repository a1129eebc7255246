"""Declarations: what a study compares, which claims it tests by which rules, and the plan that follows."""
