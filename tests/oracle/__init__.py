"""The float64 oracle: the model of strata-mini's description, step by step, in plain numpy.

Written from the description alone; shares no code with the engine, its formats or its kernels, and rounds nothing
on purpose.  `operations` holds single steps for unit tests, `model` runs whole tokens, `drafts` the draft layer,
`weights` reads the model files, `fixture_model` caches the model of `fixtures/` for pytest.
"""
