"""Windows pipelined through the stages: one thread per stage, windows of several groups in flight.

Each stage takes windows in the order in which they were submitted, so that a slot's windows meet every stage in order.
A window's logits, or the error that ended it, come back through its future.  `overlaps` counts windows that a stage
began while another stage was at work: the proof that something was pipelined.  Does not know: requests, groups.
"""

import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from queue import SimpleQueue

from strata.rows import Window
from strata.split.stages import HandOff, Stage


class Pipeline:
    """Threads that run windows through stages; a context manager."""

    def __init__(self, stages: Sequence[Stage], hand_off: HandOff, counters: Counter) -> None:
        self._stages, self._hand_off, self._counters = stages, hand_off, counters
        self._inboxes = [SimpleQueue() for _ in stages]
        self._busy, self._lock = 0, threading.Lock()
        self._threads = [threading.Thread(target=self._serve, args=(i,), name=f"stage-{i}", daemon=True) for i in range(len(stages))]
        for thread in self._threads:
            thread.start()

    def submit(self, window: Window) -> Future:
        """Send a window in; the future gives its logits [len(logit_rows), vocabulary]."""
        future: Future = Future()
        self._inboxes[0].put((window, None, future))
        return future

    def close(self) -> None:
        """Let the windows in flight finish and stop the threads."""
        self._inboxes[0].put(None)
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> "Pipeline":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self, index: int) -> None:
        is_last = index + 1 == len(self._stages)
        while (item := self._inboxes[index].get()) is not None:
            window, rows, future = item
            self._enter()
            try:
                result = self._stages[index].run(window, rows)
                if not is_last:
                    result = self._hand_off.cross(result)
            except Exception as error:
                self._leave()
                future.set_exception(error)
                continue
            self._leave()
            if is_last:
                future.set_result(result)
            else:
                self._inboxes[index + 1].put((window, result, future))
        if not is_last:
            self._inboxes[index + 1].put(None)

    def _enter(self) -> None:
        with self._lock:
            self._counters["overlaps"] += self._busy > 0
            self._busy += 1

    def _leave(self) -> None:
        with self._lock:
            self._busy -= 1
