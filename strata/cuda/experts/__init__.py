"""The experts of a layer: router, choice, lists of entries, gate and up, down, combination."""
