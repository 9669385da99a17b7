"""What each launch of a window costs in its place: python -m tests.gpu.measure.left_out [ROWS ...].

A window's launches are captured as a graph once with all of them and once without each kind (the same kernel and grid): the difference is what
that kind adds to the window, behind what comes before it and under what follows it, where `strata bench gpu --profile` times it alone.  What
such a window computes is wrong, how long it takes is not.  Microseconds of a launch, on the model of window_variants.py.
"""

import sys

from tests.gpu.measure.window_variants import LAYERS, SEED, executor_of, made_stage, window_of

N_TIMES = 31


def kinds_of(launches) -> dict[tuple, list[int]]:
    """Return the numbers of a window's launches by kernel and grid, but for the first, behind which all others follow."""
    kinds: dict[tuple, list[int]] = {}
    for number, launch in enumerate(launches):
        if number > 0:
            name = launch.dispatcher.py_func.__qualname__.partition(".")[0]
            kinds.setdefault((name, launch.shape.grid, launch.shape.n_threads), []).append(number)
    return kinds


def measure(device, config, stage, n_rows: int) -> None:
    from strata.bench.gpu.clocks import graph_ms, launch_us
    from strata.bench.gpu.stage import fill_cells
    from strata.windows.stage_pass import pass_blocks

    executor, window = executor_of(device, config, stage, n_rows), window_of(config, n_rows)
    try:
        fill_cells(executor.sessions, SEED)
        executor.run_window(window, None, pass_blocks)
        launches = executor.prepare(window, pass_blocks).launches
        whole = 1e3 * graph_ms(device, launches, N_TIMES).median
        print(f"{n_rows} rows, {LAYERS} layers: {whole:.1f} us, {len(launches)} launches; us of a launch in its place, and alone", flush=True)
        for (name, grid, n_threads), numbers in kinds_of(launches).items():
            out = set(numbers)
            without = 1e3 * graph_ms(device, [one for number, one in enumerate(launches) if number not in out], N_TIMES).median
            alone = launch_us(device, [launches[number] for number in numbers] * max(1, 24 // len(numbers)), N_TIMES)
            print(f"  {len(numbers):3d} x {name:28s} {grid!s:12s} {n_threads:4d}  {(whole - without) / len(numbers):7.2f} {alone:7.2f}", flush=True)
    finally:
        executor.close()


def main(words: list[str]) -> int:
    from strata.bench.gpu.clocks import TimedDevice

    device = TimedDevice(0)
    config, stage = made_stage(device)
    for n_rows in map(int, words or ["1"]):
        measure(device, config, stage, n_rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
