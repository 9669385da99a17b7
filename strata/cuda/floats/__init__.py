"""Products with float weights: a file for each shape of rows and columns."""
