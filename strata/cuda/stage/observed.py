"""Observed windows: launches sent one after the other, and each tap's values shown to an observer on the way.

At a tap the card is waited for, the values are copied to the host and shown there in the host's layout.  What the observer
changed is copied back before the next launch, and what was made of it already is made once more.  No graph is used.
Does not know: who observes, how taps were noted.
"""

from collections.abc import Sequence

import numpy as np

from strata.cuda.card.launch import BUILDING, Launch, send
from strata.cuda.stage.taps import Tap
from strata.errors import UsageError
from strata.rows import Window


def run_observed(device, observe, launches: Sequence[Launch], taps: Sequence[Tap], window: Window, send_some=send) -> None:
    """Run a window's launches, which `send_some` sends, and show its taps, in the order in which they were noted."""
    done = 0
    for tap in taps:
        send_some(launches[done : tap.at])
        done = tap.at
        show(device, observe, tap, window, window.count)
    send_some(launches[done:])


def show(device, observe, tap: Tap, window: Window, kept: np.ndarray) -> None:
    """Show one tap; kept int32 [segments] says how many rows of each segment are kept.  Changes are taken over.

    Raises UsageError where values were changed that the card has used already and cannot use again.
    """
    ranges = tap.ranges(window, kept) if tap.ranges else [(0, tap.shape[0])]
    values = tap.fetch(device, ranges)
    before = [values[first : first + count].copy() for first, count in ranges]
    observe(window, tap.point, tap.layer, values, tap.place(window, kept))
    if all(_same_bits(was, values[first : first + count]) for was, (first, count) in zip(before, ranges, strict=True)):
        return
    if tap.is_final:
        raise UsageError(
            f"a change at {tap.point} on {device.name}", "the launch that makes these values uses them itself",
            "change what is made of them, or put this stage on the host",
        )
    tap.put(device, values, ranges)
    if tap.again is not None:
        with BUILDING:
            launches = tap.again()
        send(launches)


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    kind = f"u{a.itemsize}"
    return np.array_equal(a.view(kind), b.view(kind))
