"""Settings of every test process, made before numpy is imported.

numpy's products take one thread: the oracle's small ones waited for a second thread far longer than they computed wherever
another program held a core, and two processes share the tests.  Teams of threads of `strata` are not numpy's, and stay as
tests ask for them.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
