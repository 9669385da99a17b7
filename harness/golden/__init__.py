"""Golden records: what a model answers, to the bit, kept in a file that holds on every machine in canonical mode."""
