"""Attention and what comes before it: heads, cells, the indexer's scores, the choice of cells, splits and their merge."""
