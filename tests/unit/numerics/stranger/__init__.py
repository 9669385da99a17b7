"""A third executor, written from docs/NUMERICS.md alone: numpy, one rounding per operation, no kernel, nothing shared.

Slow and plain.  Tests compare its bits with the engine's; its functions take parameters for lanes, splits and the like
where a test needs an order that is *not* the contract's.
"""
