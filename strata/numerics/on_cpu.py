"""The numerics compiled for the CPU: the one place where the factories meet the CPU's seam."""

from strata.numerics import codes, functions, orders
from strata.numerics.cpu import SEAM

FUNCTIONS = functions.build(SEAM)
CODES = codes.build(SEAM)
ORDERS = orders.build(SEAM)

exp, sigmoid, silu, softplus, key = FUNCTIONS.exp, FUNCTIONS.sigmoid, FUNCTIONS.silu, FUNCTIONS.softplus, FUNCTIONS.key
root_gate, exp_below = FUNCTIONS.root_gate, FUNCTIONS.exp_below
magnitude, scale_of, code_of = CODES.magnitude, CODES.scale_of, CODES.code_of
tree8, sum_row_lanes, sum_wide_lanes = ORDERS.tree8, ORDERS.sum_row_lanes, ORDERS.sum_wide_lanes
