"""Products with quantised weights: formats in shared memory, dp4a and tensor cores, which kernel serves which rows."""
