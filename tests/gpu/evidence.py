"""Makes the evidence of docs/evidence on this machine's cards in one go:

    python -m tests.gpu.evidence FOLDER [--cards N] [--limit SECONDS] [--only PART,PART | --without PART,PART]

First, alone on the card, the tests of memory and the benchmarks; then side by side, in lanes, every suite and all other tests of tests/gpu.
A line tells what ended, when and how, as it ends: a run that is cut off has said all that it knew.  FOLDER gets what the harness and the
benchmarks write, one line where it is large, and the output of each part in PART.log.  Compile the kernels first (`strata kernels`, or
`python -m tests.ptx.prebuild`), or the first window of each shape does.  The exit status is 1 where a part failed or was cut off.  --only and
--without name parts, where a machine is not lent for long enough to make all of them at once.
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

LARGEST_FILE = 300_000
HARNESS, STRATA = ("-m", "harness.cli.main"), ("-c", "import sys; from strata.cli.main import main; sys.exit(main())")
ALONE = ("tests/gpu/test_memory.py", "tests/gpu/test_device.py")
SPLIT = ("--layer-split", "6")


@dataclass(frozen=True, slots=True)
class Part:
    """A command of Python's, named by the file that it fills."""

    name: str
    command: tuple[str, ...]
    writes: bool = True


def suites(name: str, chosen: str, devices: str = "", *more: str) -> Part:
    """Suites of the harness on some devices; none named: the suite's own."""
    return Part(name, (*HARNESS, "run", "--suite", chosen, *(("--devices", devices) if devices else ()), *more, "--threads", "2"))


def tests(name: str, *chosen: str) -> Part:
    return Part(name, ("-m", "pytest", "-v", "-m", "", *chosen), False)


def first_parts() -> list[Part]:
    """What wants the card for itself."""
    return [
        tests("memory", *ALONE),
        Part("h200-bench-gpu", (*STRATA, "bench", "gpu", "--profile", "1,8,2048")),
        Part("h200-bench-tier", (*STRATA, "bench", "tier", "--devices", "cuda:0", "--resident", "0.3")),
        Part("h200-bench-resident", (*STRATA, "bench", "gpu", "--resident", "0.3", "--experts", "Q4_K", "--rows", "1,8", "--chunks", "none")),
    ]


def lanes(n_cards: int) -> list[list[Part]]:
    """What may run side by side: parts of a lane come one after the other."""
    card, mixed = "cuda:0", "cuda:0,host"
    made = [
        [tests("tests", "-n", "8", "--dist", "worksteal", "tests/gpu", *(f"--ignore={path}" for path in ALONE))],
        [suites("h200-device", "device"), suites("h200-card-and-host-tier-ram", "tier,ram", mixed)],
        [
            suites("h200-batch-window-chunks", "batch,window,chunks", card), suites("h200-tier", "tier", card),
            suites("h200-two-stages", "split,pipeline", f"{card},{card}"),
        ],
        [suites("h200-drafts-sampled-batch-mtp", "drafts,sampled,batch-mtp", card), suites("h200-loans", "loans", card)],
        [suites("h200-pcie", "pcie", card), suites("h200-ram-pool", "ram,pool", card), suites("h200-card-and-host-pcie-pool", "pcie,pool", mixed, *SPLIT)],
        [
            suites("h200-card-and-host-drafts", "drafts,sampled,batch-mtp", mixed, *SPLIT),
            Part("h200-golden-cuda", (*HARNESS, "check", "--devices", card)),
        ],
    ]
    if n_cards > 1:
        both = "cuda:0,cuda:1"
        made.append([suites("h200-two-cards", "split,pipeline,drafts,sampled,batch-mtp", both), suites("h200-two-cards-pool", "pool", both)])
        made.append([suites("h200-two-cards-tier-loans", "tier,loans", both), suites("h200-two-cards-pcie-ram", "pcie,ram", both)])
    return made


def chosen(parts: list[Part], only: str | None, without: str | None) -> list[Part]:
    """Return the parts that are named by `only` (all, where it is None) and not by `without`; names separated by commas."""
    wanted, left_out = only.split(",") if only is not None else None, (without or "").split(",")
    return [part for part in parts if (wanted is None or part.name in wanted) and part.name not in left_out]


def unknown_names(n_cards: int, *texts: str | None) -> list[str]:
    """Return what is named and is no part."""
    known = {part.name for lane in (first_parts(), *lanes(n_cards)) for part in lane}
    return [name for text in texts if text for name in text.split(",") if name not in known]


class Runner:
    """Runs parts within a limit of seconds for all of them, and tells how each ended."""

    def __init__(self, folder: Path, limit_s: float, tell=print) -> None:
        self.folder, self.ends_at, self.tell, self.n_bad = folder, time.monotonic() + limit_s, tell, 0
        self._lock = threading.Lock()

    def run(self, part: Part) -> None:
        """Run one part; its log is written as it speaks."""
        target, log = self.folder / f"{part.name}.json", self.folder / f"{part.name}.log"
        began, command = time.monotonic(), [sys.executable, *part.command, *(("--json", str(target)) if part.writes else ())]
        with log.open("w") as output:
            try:
                ended = str(subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, timeout=max(1.0, self.ends_at - began)).returncode)
            except subprocess.TimeoutExpired:
                ended = "cut off"
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        failed = [line for line in lines if "FAILED" in line or "ERROR" in line]
        if target.exists() and target.stat().st_size > LARGEST_FILE:
            target.write_text(json.dumps(json.loads(target.read_text()), separators=(",", ":"), ensure_ascii=False) + "\n")
        with self._lock:
            self.n_bad += ended != "0"
            self.tell(f"{part.name}: {ended}, {time.monotonic() - began:.0f} s; {lines[-1][:120] if lines else 'it said nothing'}")
            for line in dict.fromkeys(failed):
                self.tell(f"    {line[:150]}")

    def run_lane(self, parts: list[Part]) -> None:
        for part in parts:
            self.run(part)

    def run_beside(self, all_lanes: list[list[Part]]) -> None:
        """Run lanes side by side."""
        threads = [threading.Thread(target=self.run_lane, args=(lane,)) for lane in all_lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cards", type=int, default=1)
    parser.add_argument("--limit", type=float, default=1800)
    parser.add_argument("--only")
    parser.add_argument("--without")
    asked = parser.parse_args(arguments)
    if unknown := unknown_names(asked.cards, asked.only, asked.without):
        parser.error(f"no such part: {', '.join(unknown)}")
    asked.folder.mkdir(parents=True, exist_ok=True)
    runner = Runner(asked.folder, asked.limit, lambda line: print(line, flush=True))
    runner.run_lane(chosen(first_parts(), asked.only, asked.without))
    runner.run_beside([chosen(lane, asked.only, asked.without) for lane in lanes(asked.cards)])
    return int(runner.n_bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
