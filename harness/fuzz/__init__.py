"""Fuzzing plans: random ways of running random requests, compared with each request alone."""
