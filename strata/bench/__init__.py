"""Measurements behind `strata bench`: pure measuring, no printing.

A measurement is repeated in rounds after one that warms up; all quantities that are compared are measured in the same
rounds, so that a busy machine disturbs both sides.  Nothing here passes or fails.
"""
