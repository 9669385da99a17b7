"""Every exception of the engine, in one place.

An error says what is wrong (with the value), why, and what to do.  The command line prints it as one line and
exits with `exit_code`; nothing else in the project decides on exit codes for failures.
"""


class StrataError(Exception):
    """Base of all expected failures.

    `what` names the culprit with its value, `why` gives the reason, `remedy` the way out; all are one-line strings.
    """

    exit_code = 2

    def __init__(self, what: str, why: str, remedy: str) -> None:
        super().__init__(f"{what}: {why}; {remedy}")
        self.what, self.why, self.remedy = what, why, remedy


class UsageError(StrataError):
    """A setting, flag or request that cannot be honoured."""


class ModelFileError(StrataError):
    """A model file that is missing, damaged, or of another kind."""


class DeviceError(StrataError):
    """A device that does not exist, cannot be used, or refuses an operation."""


class DeviceMemoryError(DeviceError):
    """A device's memory budget does not suffice; carries the figures in bytes."""

    def __init__(self, device: str, purpose: str, asked_bytes: int, free_bytes: int) -> None:
        super().__init__(
            f"{purpose} asks for {asked_bytes:,} bytes on {device}",
            f"{free_bytes:,} bytes are free there",
            "use a larger budget, fewer slots, a shorter context or another layer split",
        )
        self.device, self.purpose = device, purpose
        self.asked_bytes, self.free_bytes = asked_bytes, free_bytes


class PoolJobError(StrataError):
    """A job of the CPU pool that failed: the requests of its window end with it, others go on."""

    def __init__(self, layer: int, reason: Exception) -> None:
        super().__init__(f"a job of the CPU pool, layer {layer}", f"{type(reason).__name__}: {reason}", "send the request again; report it if it fails again")


class RequestError(StrataError):
    """A request that ends without an answer: bad tokens, too long, or a logits row that is not finite."""


class PlantedFault(StrataError):
    """Raised only by a fault that the harness planted on purpose."""


class SeenEnough(StrataError):
    """Raised by a probe to end a run whose rest it does not need."""

    def __init__(self) -> None:
        super().__init__("the run", "a probe has seen all that it wanted", "nothing is wrong: whoever attached it goes on")
