"""What a stage's windows need on a card: weights by layer, buffers, index arrays."""
