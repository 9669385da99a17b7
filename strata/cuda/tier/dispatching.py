"""Dispatch on a card: which place computes which of a layer's chosen experts, and the message to the CPU pool about its share.

One block does what `strata.experts.dispatch.lay_out` does, from the router's lists: experts in first-appearance order are parted into
those in the cache, those fetched over PCIe (the last floor(missed * share / 256) missed ones, where their bytes may be fetched and the
ring has room) and jobs of the pool, each in that order.  An expert is absent where its slot is negative, and cannot be fetched where
the address of its gate is 0.  One warp parts and sums, all threads write.

The lists of the card's own products hold cached and fetched experts only, by place in the expert buffer; behind them experts are -1 and
starts the number of the card's entries.  entry_of and entry_rows are those of all entries, jobs last.  The message is written in the
layout of mailbox.py, the flag last.  Shapes: ids int32 [rows, K]; slot_of int32, sources int64 [.., 3] of all of the stage's layers.
Does not know: bytes of experts, the pool.
"""

from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from numba import cuda

from strata.cuda.card.device import CudaDevice
from strata.cuda.card.launch import Launch, Shape
from strata.cuda.experts.routing import LARGEST_LIST
from strata.cuda.machine.seam import (
    Target, jit, kernel, launch_dependents, shuffle_int, store_release, sync_warp, wait_for_dependency,
)
from strata.cuda.machine.shapes import require
from strata.cuda.machine.stores import copy_floats
from strata.cuda.machine.warps import ballot, count_bits, lower_lanes, sum_int
from strata.cuda.memory.workspace import PLACES
from strata.cuda.packed.products import Lists
from strata.cuda.tier.mailbox import (
    CACHED_ENTRIES, FETCHED_ENTRIES, FIELDS, FLAG, JOB_ENTRIES, N_CACHED, N_DISTINCT, N_FETCHED, N_JOBS, N_ROWS, STEP_MASK, Mailbox,
)

THREADS, CHUNK_THREADS = 256, 1024
SIZES = 8
STEP, JOBS, OWN_ENTRIES, ALL_ENTRIES, FETCHED = range(5)
"""Words of `sizes`: the step, jobs, the card's entries, all entries, fetched experts."""
CACHED_KIND, FETCHED_KIND, JOB_KIND = 0, 1, 2
KINDS = 4


def parting(n_experts: int):
    """Build `part(...)`: the kind of each listed expert and its number among its kind, by one warp.

    Returns how many are cached, fetched and jobs; kinds[i] = KINDS * number + kind.
    """

    @jit
    def count_missed(n, experts, slot_of, first, lane):
        missed = np.int32(0)
        for begin in range(0, n, 32):
            i = np.int32(begin + lane)
            if i < n:
                missed = np.int32(missed + (1 if slot_of[first + experts[i]] < 0 else 0))
        return sum_int(missed)

    @jit
    def part(n, experts, slot_of, sources, layer, share, ring_room, kinds, lane):
        first, below = np.int64(layer) * n_experts, lower_lanes(lane)
        missed = count_missed(n, experts, slot_of, first, lane)
        first_fetched = np.int32(missed - ((missed * share) >> 8))
        seen, cached, asked, jobs = np.int32(0), np.int32(0), np.int32(0), np.int32(0)
        for begin in range(0, n, 32):
            i = np.int32(begin + lane)
            is_listed = i < n
            at = first + experts[min(i, np.int32(n - 1))]
            is_missed = is_listed and slot_of[at] < 0
            all_missed = ballot(is_missed)
            wants = is_missed and np.int32(seen + count_bits(all_missed & below)) >= first_fetched and sources[3 * at] != 0
            all_wanted = ballot(wants)
            number = np.int32(asked + count_bits(all_wanted & below))
            is_fetched = wants and number < ring_room
            is_cached, is_job = is_listed and not is_missed, is_missed and not is_fetched
            all_cached, all_jobs = ballot(is_cached), ballot(is_job)
            kind = FETCHED_KIND
            if is_cached:
                kind, number = CACHED_KIND, np.int32(cached + count_bits(all_cached & below))
            if is_job:
                kind, number = JOB_KIND, np.int32(jobs + count_bits(all_jobs & below))
            if is_listed:
                kinds[i] = np.int32(KINDS * number + kind)
            seen = np.int32(seen + count_bits(all_missed))
            cached, jobs = np.int32(cached + count_bits(all_cached)), np.int32(jobs + count_bits(all_jobs))
            asked = np.int32(asked + count_bits(all_wanted))
        return cached, min(asked, np.int32(ring_room)), jobs

    return part


@jit
def order_and_sum(n, cached, fetched, starts, kinds, order, begins, lane):
    """order[d] = the listed expert at place d of the new order, begins[d] its first entry; by one warp."""
    for begin in range(0, n, 32):
        i = np.int32(begin + lane)
        if i < n:
            kind, number = kinds[i] & (KINDS - 1), np.int32(kinds[i] >> 2)
            if kind == FETCHED_KIND:
                number = np.int32(number + cached)
            if kind == JOB_KIND:
                number = np.int32(number + cached + fetched)
            order[number] = i
    sync_warp()
    total = np.int32(0)
    for begin in range(0, n, 32):
        d = np.int32(begin + lane)
        own = np.int32(0)
        if d < n:
            own = np.int32(starts[order[d] + 1] - starts[order[d]])
        before, step = own, np.int32(1)
        while step < 32:
            theirs = shuffle_int(before, max(np.int32(lane - step), np.int32(0)))
            before = np.int32(before + (theirs if lane >= step else np.int32(0)))
            step = np.int32(2 * step)
        if d < n:
            begins[d] = np.int32(total + before - own)
        total = np.int32(total + shuffle_int(before, np.int32(31)))
    if lane == 0:
        begins[n] = total


def _writers(n_used: int, n_threads: int) -> SimpleNamespace:
    """Build what all threads of the block write: the lists of the card's own products, the pool's jobs, and every entry's place."""

    @jit
    def write_lists(thread, n, cached, own, experts, starts, slot_of, first, n_slots, order, begins, shifts, own_experts, own_starts, n_places, fetched):
        for d in range(thread, n, n_threads):
            i = order[d]
            e = experts[i]
            shifts[e] = np.int32(begins[d] - starts[i])
            if d < own:
                own_starts[d] = begins[d]
                own_experts[d] = slot_of[first + e] if d < cached else np.int32(n_slots + d - cached)
                if d >= cached:
                    fetched[d - cached] = e
        for d in range(own + thread, n_places, n_threads):
            own_experts[d] = np.int32(-1)
        for d in range(own + thread, n_places + 1, n_threads):
            own_starts[d] = begins[own]

    @jit
    def write_jobs(thread, n, own, experts, order, begins, job_experts, job_starts):
        for d in range(own + thread, n, n_threads):
            job_experts[d - own], job_starts[d - own] = experts[order[d]], np.int32(begins[d] - begins[own])
        if thread == 0:
            job_starts[n - own] = np.int32(begins[n] - begins[own])

    @jit
    def write_entries(thread, n_entries, ids, entry_of, shifts, own_rows, own_entry_of, log, log_from, first_job, job_rows):
        for entry in range(thread, n_entries, n_threads):
            e = ids[entry]
            place, row = np.int32(entry_of[entry] + shifts[e]), np.int32(entry // n_used)
            own_entry_of[entry], own_rows[place] = place, row
            log[log_from + entry] = e
            if place >= first_job:
                job_rows[place - first_job] = row

    return SimpleNamespace(lists=write_lists, jobs=write_jobs, entries=write_entries)


@jit
def _write_header(headers, at, n_rows, n, cached, fetched, jobs, begins):
    headers[at + N_ROWS], headers[at + N_DISTINCT], headers[at + N_CACHED] = n_rows, n, cached
    headers[at + N_FETCHED], headers[at + N_JOBS] = fetched, jobs
    headers[at + JOB_ENTRIES] = np.int32(begins[n] - begins[cached + fetched])
    headers[at + CACHED_ENTRIES] = begins[cached]
    headers[at + FETCHED_ENTRIES] = np.int32(begins[cached + fetched] - begins[cached])


@cache
def dispatch_kernel(n_experts: int, n_used: int, n_threads: int, target: Target):
    """Return the kernel, one block of n_threads.

    kernel(layer, n_entries, ids, n_listed, experts, starts, entry_of, slot_of, sources, share, ring_room, n_slots, own_listed,
    own_experts, own_starts, own_rows, own_entry_of, n_places, fetched, sizes, steps, headers, log, job_experts, job_starts, job_rows,
    values, job_values, width): the router's lists; tables; the lists made, of n_places experts; the message.
    """
    part, room, write = parting(n_experts), n_experts + 1, _writers(n_used, n_threads)
    write_lists, write_jobs, write_entries = write.lists, write.jobs, write.entries
    go_on, wait_before = launch_dependents(target), wait_for_dependency(target)

    @kernel(n_threads)
    def run(
        layer, n_entries, ids, n_listed, experts, starts, entry_of, slot_of, sources, share, ring_room, n_slots, own_listed, own_experts,
        own_starts, own_rows, own_entry_of, n_places, fetched, sizes, steps, headers, log, job_experts, job_starts, job_rows, values,
        job_values, width,
    ):
        # One to a line: the simulator tells shared arrays apart by their lines.
        kinds = cuda.shared.array(n_experts, np.int32)
        order = cuda.shared.array(n_experts, np.int32)
        begins = cuda.shared.array(room, np.int32)
        shifts = cuda.shared.array(n_experts, np.int32)
        counts = cuda.shared.array(4, np.int32)
        go_on()
        wait_before()
        thread, n = np.int32(cuda.threadIdx.x), n_listed[0]
        if thread < 32:
            n_cached, n_fetched, n_jobs = part(n, experts, slot_of, sources, layer, share[0], ring_room, kinds, thread)
            sync_warp()
            order_and_sum(n, n_cached, n_fetched, starts, kinds, order, begins, thread)
            if thread == 0:
                counts[0], counts[1], counts[2], counts[3] = n_cached, n_fetched, n_jobs, np.int32((steps[layer] + 1) & STEP_MASK)
        cuda.syncthreads()
        cached, fetches, jobs, step = counts[0], counts[1], counts[2], counts[3]
        own, n_rows, first = np.int32(cached + fetches), np.int32(n_entries // n_used), np.int64(layer) * n_experts
        write_lists(thread, n, cached, own, experts, starts, slot_of, first, n_slots, order, begins, shifts, own_experts, own_starts, n_places, fetched)
        cuda.syncthreads()
        write_entries(thread, n_entries, ids, entry_of, shifts, own_rows, own_entry_of, log, np.int64(layer) * n_entries, begins[own], job_rows)
        if jobs > 0:
            write_jobs(thread, n, own, experts, order, begins, job_experts, job_starts)
            copy_floats(values, job_values, np.int64(0), np.int32(n_rows * width >> 2), thread, n_threads)
            cuda.threadfence_system()
        cuda.syncthreads()
        if thread == 0:
            own_listed[0], steps[layer] = own, step
            sizes[STEP], sizes[JOBS], sizes[OWN_ENTRIES], sizes[ALL_ENTRIES], sizes[FETCHED] = step, jobs, begins[own], n_entries, fetches
            _write_header(headers, np.int64(layer) * FIELDS, n_rows, n, cached, fetches, jobs, begins)
            at, flag = np.int64(layer) * FIELDS + FLAG, np.int32(2 * step + (1 if jobs > 0 else 0))
            if jobs > 0:
                store_release(headers, at, np.uint32(flag))
            else:
                headers[at] = flag

    return run


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """Where a stage's experts lie, on the card: slot_of int32 [layers * E], sources int64 [layers * E * 3], share int32 [1]."""

    slot_of: Any
    sources: Any
    share: Any


@dataclass(frozen=True, slots=True, eq=False)
class Dispatched:
    """What a dispatch fills: the lists of the card's own products, entry_of of all entries, fetched int32 [places], sizes int32 [SIZES]."""

    lists: Lists
    entry_of: Any
    fetched: Any
    sizes: Any


def launch_dispatch(
    device: CudaDevice, mailbox: Mailbox, layer: int, n_rows: int, ids, lists: Lists, entry_of, values, tables: Tables, n_slots: int,
    ring_room: int, into: Dispatched, programmatic: bool = False,
) -> Launch:
    """Part one layer's experts and write its message; `layer` counts the stage's own, values float32 [rows, H] are the router's input."""
    c, areas = mailbox.config, mailbox.areas(n_rows)
    require(c.n_used <= 32 and c.n_experts <= LARGEST_LIST, f"{c.n_used} of {c.n_experts} experts", f"32 of {LARGEST_LIST} fit")
    require(areas is not None, f"{n_rows} rows", "the mailbox was made for fewer", "let it grow first")
    own, n_threads = into.lists, THREADS if n_rows <= PLACES else CHUNK_THREADS
    arguments = (
        np.int32(layer), np.int32(n_rows * c.n_used), ids, lists.n_listed, lists.experts, lists.starts, entry_of, tables.slot_of, tables.sources,
        tables.share, np.int32(ring_room), np.int32(n_slots), own.n_listed, own.experts, own.starts, own.entry_rows, into.entry_of,
        np.int32(own.most_experts), into.fetched, into.sizes, mailbox.steps, mailbox.headers.card, areas.log.card, areas.job_experts.card,
        areas.job_starts.card, areas.job_rows.card, values, areas.values.card, np.int32(c.hidden),
    )
    return Launch(device, dispatch_kernel(c.n_experts, c.n_used, n_threads, device.target), Shape((1, 1), n_threads), arguments, programmatic)
