"""Bodies of the seam for Numba's CUDA simulator: the names of `intrinsics.py`, in plain Python.

The simulator runs a block's threads as Python threads.  It knows no warps, so a warp's collectives meet here: each thread
posts its operands, waits for the other 31, reads, and waits again.  The meeting places belong to the simulator's block
manager and vanish with the block.  Logic and bounds are faithful; bits are claimed by nobody (fma goes through long
double).  Does not know: kernels, speed.
"""

import threading
import time

import numpy as np

WARP = 32
PATIENCE_S = 30.0


def add(a, b):
    return np.float32(a) + np.float32(b)


def mul(a, b):
    return np.float32(a) * np.float32(b)


def div(a, b):
    return np.float32(a) / np.float32(b)


def fma(a, b, c):
    return np.float32(np.longdouble(a) * np.longdouble(b) + np.longdouble(c))


def sqrt(a):
    return np.sqrt(np.float32(a))


def bits(a):
    return np.float32(a).view(np.int32)


def from_bits(a):
    return np.int32(a).view(np.float32)


def half(a):
    return np.float32(np.uint16(a & 0xFFFF).view(np.float16))


def to_half(a):
    return np.float16(a).view(np.uint16)


def brain(a):
    return np.uint32((int(a) & 0xFFFF) << 16).view(np.float32)


def round_even(a):
    return np.int32(np.rint(a))


def _bytes_of(array):
    """Return the bytes of an array as the kernel sees it: a view, never a copy."""
    inner = getattr(array, "_item", None)
    plain = inner._ary if inner is not None else array
    return plain.reshape(-1).view(np.uint8)


def _read(array, at, n_bytes, kind):
    data = _bytes_of(array)
    if at < 0 or at + n_bytes > data.size or at % n_bytes:
        raise IndexError(f"bytes {at} .. {at + n_bytes} of {data.size}: outside, or not aligned")
    return data[at : at + n_bytes].view(kind)


def load_u8(raw, at):
    return np.uint32(_read(raw, at, 1, np.uint8)[0])


def load_u16(raw, at):
    return np.uint32(_read(raw, at, 2, np.uint16)[0])


def load_word(raw, at):
    return _read(raw, at, 4, np.uint32)[0]


def load_pair_words(raw, at):
    return np.uint32(load_u16(raw, at) | (load_u16(raw, at + 2) << 16))


def load_two_words(array, at):
    return tuple(_read(array, at, 8, np.int32))


def load_four_words(array, at):
    return tuple(_read(array, at, 16, np.int32))


def load_two_floats(array, at):
    return tuple(_read(array, at, 8, np.float32))


def load_four_floats(array, at):
    return tuple(_read(array, at, 16, np.float32))


def store_word(array, at, value):
    _read(array, at, 4, np.int32)[0] = value


def constant_table(array):
    return lambda i: array[i]


def dp4a(a, b, c):
    left, right = np.int32(a).tobytes(), np.int32(b).tobytes()
    products = np.frombuffer(left, np.int8).astype(int) * np.frombuffer(right, np.int8)
    return np.int32(int(c) + int(products.sum()))


def dp4a_unsigned(a, b, c):
    products = np.frombuffer(np.uint32(a).tobytes(), np.uint8).astype(int) * np.frombuffer(np.int32(b).tobytes(), np.int8)
    return np.int32(int(c) + int(products.sum()))


def permute_bytes(a, b, selector):
    source = np.uint32(a).tobytes() + np.uint32(b).tobytes()
    return np.frombuffer(bytes(source[(int(selector) >> 4 * i) & 7] for i in range(4)), np.uint32)[0]


class _Meeting:
    """Where the 32 threads of a warp exchange operands."""

    def __init__(self):
        self.barrier, self.posted = threading.Barrier(WARP), [None] * WARP


def _meet(operands):
    """Post this thread's operands; return its lane and everybody's operands."""
    thread = threading.current_thread()
    meetings = vars(thread._manager).setdefault("warp_meetings", {})
    meeting = meetings.setdefault(thread.thread_id // WARP, _Meeting())
    lane = thread.thread_id % WARP
    meeting.posted[lane] = operands
    meeting.barrier.wait(PATIENCE_S)
    everybody = list(meeting.posted)
    meeting.barrier.wait(PATIENCE_S)
    return lane, everybody


def sync_warp():
    _meet(None)


def shuffle_float(value, lane):
    return np.float32(_meet(value)[1][int(lane) % WARP])


def shuffle_int(value, lane):
    return np.int32(_meet(value)[1][int(lane) % WARP])


def exchange_float(value, mask):
    lane, everybody = _meet(value)
    return np.float32(everybody[lane ^ int(mask)])


def exchange_int(value, mask):
    lane, everybody = _meet(value)
    return np.int32(everybody[lane ^ int(mask)])


def _codes(word):
    return np.frombuffer(np.int32(word).tobytes(), np.int8).astype(int)


def _matrix(everybody, fragments, n_rows):
    """Rows of int8 values from words: thread 4 r + j holds word j of row r; `fragments` names [row block][k block] operands."""
    blocks = []
    for row_block in fragments:
        rows = [np.concatenate([_codes(everybody[4 * r + j][at]) for at in row_block for j in range(4)]) for r in range(n_rows)]
        blocks.append(np.stack(rows))
    return np.concatenate(blocks)


def _product(operands, left, right, starts):
    """One tensor-core product; `left` and `right` name operands as in `_matrix`, `starts` those that are added."""
    lane, everybody = _meet(operands)
    together = _matrix(everybody, left, 8) @ _matrix(everybody, right, 8).T
    row, column = lane // 4, 2 * (lane % 4)
    places = [(row + 8 * (i // 2), column + i % 2) for i in range(len(starts))]
    return tuple(np.int32(int(together[place]) + int(operands[at])) for place, at in zip(places, starts, strict=True))


def mma_m16n8k32(*operands):
    return _product(operands, [[0, 2], [1, 3]], [[4, 5]], [6, 7, 8, 9])


def mma_m16n8k16(*operands):
    return _product(operands, [[0], [1]], [[2]], [3, 4, 5, 6])


def mma_m8n8k16(*operands):
    return _product(operands, [[0]], [[1]], [2, 3])


def copy_async(n_bytes):
    def copy(target, target_at, source, source_at):
        data = _bytes_of(target)
        if target_at % n_bytes or source_at % n_bytes or target_at + n_bytes > data.size:
            raise IndexError(f"copy of {n_bytes} bytes from {source_at} to {target_at} of {data.size}: outside, or not aligned")
        data[target_at : target_at + n_bytes] = _bytes_of(source)[source_at : source_at + n_bytes]

    return copy


copy_now = copy_async


def copy_commit():
    return


def copy_wait(n_pending):
    return copy_commit


wait_for_dependency = launch_dependents = copy_commit


def load_acquire(array, i):
    return np.uint32(array[i])


def store_release(array, i, value):
    array[i] = value


def clock_ns():
    return np.int64(time.monotonic_ns())


def sleep_ns(n):
    time.sleep(1e-9 * int(n))
