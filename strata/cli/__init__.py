"""The command `strata`: one file per subcommand, each with SUMMARY, `add_arguments(parser)` and `execute(options) -> int`.

Importing this room and its files imports nothing heavy (no numba, numpy, rich): `--help` must be quick.  Results go to
stdout, everything else to stderr.  Does not know: how anything is computed.
"""
