"""Vacuous tests and resolved settings: a feature is silently off, or an engine runs otherwise than it was asked to.

Where nothing differs because nothing happened, a suite must say so: its counters are 0, or both arms ran the same way.
Does not know: checks.
"""

from collections.abc import Callable
from dataclasses import replace

from harness.faults.fault import ALL, SOME, Fault
from harness.faults.hooks import on_requests, on_run, wrap
from strata.batch.engine import Engine
from strata.batch.requests import Request
from strata.batch.run import Run
from strata.batch.settings import EngineSettings

VACUOUS, RESOLVED = "vacuous test", "resolved settings"


def faults() -> list[Fault]:
    """Return the faults."""
    return [*_off(), *_silent_requests(), *_resolved()]


def setting(name: str, kind: str, words: str, seen_by: tuple[str, ...], reach: str = SOME, **changes) -> Fault:
    """Return the fault that engines are opened with other settings than asked for."""

    def changed(settings: EngineSettings) -> EngineSettings:
        return replace(settings, **changes)

    site = ", ".join(f"{key}={value}" for key, value in changes.items())
    return Fault(name, kind, site, words, seen_by, settings=changed, reach=reach)


def _off() -> list[Fault]:
    split = {"layer_split": (), "split_device": None, "devices": "host"}
    return [
        setting("off-slots", VACUOUS, "slots resolve to one", ("batch/slots-2", "batch/slots-8"), batch=1, batch_groups=1),
        setting("off-groups", VACUOUS, "groups resolve to one", ("pipeline/pipelined-2x4",), batch_groups=1),
        setting(
            "off-pipeline", VACUOUS, "groups take turns although they should be pipelined", ("pipeline/pipelined-2x4",), pipelined=False
        ),
        setting("off-split", VACUOUS, "all layers run on one device", ("split/2-stages-6",), **split),
        setting("off-chunks", VACUOUS, "prompts are read whole", ("chunks/size-7",), prefill=0),
        setting("off-draft-layer", VACUOUS, "the draft layer is never opened", ("proposals/chunks",), mtp=False, batch_mtp=False),
        setting("off-batch-mtp", VACUOUS, "slots carry no proposals", ("proposals/slots",), batch_mtp=False),
    ]


def _silent_requests() -> list[Fault]:
    def changing(**changes) -> Callable[[Engine], None]:
        return lambda engine: on_requests(engine, lambda requests: [replace(request, **changes) for request in requests])

    def wrong_drafts(requests: list[Request]) -> list[Request]:
        return [
            request if request.drafts is None else replace(request, drafts=lambda emitted: [(emitted[-1] if emitted else 0) % 7] * 3)
            for request in requests
        ]

    def at_once(engine: Engine) -> None:
        on_requests(engine, lambda requests: [replace(request, max_new=min(request.max_new, 1)) for request in requests])

    return [
        Fault("off-drafts", VACUOUS, "drafts", "drafts are never offered", ("window/width-4",), changing(drafts=None)),
        Fault(
            "off-right-drafts",
            VACUOUS,
            "drafts",
            "no draft is ever right",
            ("window/right-8",),
            lambda engine: on_requests(engine, wrong_drafts),
        ),
        Fault(
            "off-wide-windows", VACUOUS, "drafts", "windows have room for the fed token only", ("window/width-8",), changing(window_rows=1)
        ),
        Fault("off-late", VACUOUS, "arrivals", "everybody arrives at once", ("batch/late-8",), changing(arrive_after=0)),
        Fault("off-stops", VACUOUS, "stop tokens", "stop tokens are never honoured", ("batch/stops-4",), changing(stop_tokens=frozenset())),
        Fault("off-decoding", VACUOUS, "lengths", "every request ends with its first token", ("batch/slots-2",), at_once),
        Fault("off-counters", VACUOUS, "counters", "counters are cleared before anybody reads them", ("batch/slots-2",), _dead_counters),
        Fault(
            "off-roll-back",
            VACUOUS,
            "counters",
            "windows that rolled back are not counted",
            ("window/wrong-8",),
            _uncounted("rolled_back_windows"),
        ),
        Fault("off-hand-offs", VACUOUS, "counters", "hand-offs are not counted", ("split/2-stages-6",), _uncounted("hand_offs")),
    ]


def _at_batch(engine: Engine, change: Callable[[Run], None]) -> None:
    """Call `change(run)` just before a run's batch is made."""

    def of_run(run: Run) -> None:
        wrap(run, "batch", lambda batch: lambda: (change(run), batch())[1])

    on_run(engine, of_run)


def _dead_counters(engine: Engine) -> None:
    _at_batch(engine, lambda run: run.counters.clear())


def _uncounted(name: str) -> Callable[[Engine], None]:
    return lambda engine: _at_batch(engine, lambda run: run.counters.pop(name, None))


# ---- resolved settings


def _resolved() -> list[Fault]:
    return [
        setting("resolved-wide", RESOLVED, "the rounding mode of every arm resolves to wide", ("oracle",), ALL, rounding="wide"),
        setting("resolved-kv", RESOLVED, "the K/V format of every arm resolves to int8", ("golden",), ALL, kv="int8"),
        _kv_off(),
        Fault(
            "resolved-same-report",
            RESOLVED,
            "report of the settings in force",
            "both arms report the same settings, whatever they ran with",
            ("split/2-stages-6",),
            _same_report,
        ),
        Fault(
            "resolved-int8-in-company",
            RESOLVED,
            "kv",
            "an engine with slots keeps K/V as int8",
            ("batch/slots-2",),
            settings=_int8_in_slots,
        ),
        Fault(
            "resolved-wide-in-stages",
            RESOLVED,
            "rounding",
            "an engine with stages rounds in mode wide",
            ("split/2-stages-6",),
            settings=_wide_in_stages,
        ),
        Fault(
            "resolved-threads",
            RESOLVED,
            "threads",
            "every engine runs on one thread",
            ("pool/threads-3", "pool/threads-2"),
            settings=lambda s: replace(s, threads=1),
        ),
    ]


def _kv_off() -> Fault:
    """int8 cells were asked for, in both arms, and are f16."""

    def settings(asked: EngineSettings) -> EngineSettings:
        return replace(asked, kv="")

    return Fault(
        "resolved-kv-off",
        RESOLVED,
        "kv",
        "the K/V format that was asked for resolves to the default in both arms",
        ("batch/int8-4",),
        settings=settings,
    )


def _same_report(engine: Engine) -> None:
    class Told:
        """Resolved settings that describe themselves as the default's."""

        def __init__(self, resolved) -> None:
            self._resolved = resolved

        def __getattr__(self, name: str):
            return getattr(self._resolved, name)

        def described(self) -> dict[str, str]:
            return {name: "default" for name in self._resolved.described()}

    engine.resolved = Told(engine.resolved)


def _int8_in_slots(asked: EngineSettings) -> EngineSettings:
    return replace(asked, kv="int8") if asked.batch > 1 else asked


def _wide_in_stages(asked: EngineSettings) -> EngineSettings:
    return replace(asked, rounding="wide", kv="f16") if asked.layer_split else asked
