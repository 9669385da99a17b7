"""Whether CUDA can be used here, and why not: asked before anything of the CUDA executor is imported.

Imports the CUDA packages inside functions only, so that everything else runs on a machine that has none.  Does not know:
what runs on a card.
"""

from dataclasses import dataclass

from strata.errors import DeviceError

OLDEST = (7, 5)
"""The least compute capability: dp4a, and int8 tensor cores."""


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU as the driver reports it; `refusal` is None or the one-line reason why it cannot be used."""

    index: int
    name: str
    capability: tuple[int, int]
    total_bytes: int
    multiprocessors: int
    refusal: str | None


def why_no_cuda() -> str | None:
    """Return the one-line reason why CUDA cannot be used in this process, or None."""
    try:
        import numba
        from numba import cuda
    except ImportError as error:
        return f"the CUDA packages are not installed ({error})"
    if numba.config.ENABLE_CUDASIM:
        return None
    implementation = getattr(cuda, "implementation", "Built-in")
    if implementation != "NVIDIA":
        return "the package numba-cuda is not installed"
    if not cuda.is_available():
        return f"there is no usable NVIDIA driver or card ({_driver_error()})"
    return None


def _driver_error() -> str:
    from numba.cuda.cudadrv import driver

    error = str(getattr(driver.driver, "initialization_error", None) or "no card found")
    return " ".join(error.split())


def refusal_of(capability: tuple[int, int]) -> str | None:
    """Return why a card of a compute capability cannot be used, or None."""
    if capability >= OLDEST:
        return None
    return f"compute capability {capability[0]}.{capability[1]} is below {OLDEST[0]}.{OLDEST[1]}"


def find_cards() -> tuple[Card, ...]:
    """Return the machine's cards in the driver's order; none where CUDA cannot be used."""
    if why_no_cuda() is not None:
        return ()
    from cuda.bindings import driver

    cards = []
    for index in range(_checked(driver.cuDeviceGetCount())):
        device = _checked(driver.cuDeviceGet(index))
        name = _checked(driver.cuDeviceGetName(128, device)).split(b"\0")[0].decode(errors="replace")
        attribute = driver.CUdevice_attribute
        major = _checked(driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device))
        minor = _checked(driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device))
        n_units = _checked(driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device))
        total = _checked(driver.cuDeviceTotalMem(device))
        cards.append(Card(index, name, (major, minor), total, n_units, refusal_of((major, minor))))
    return tuple(cards)


def _checked(result: tuple):
    """Return what a driver call gave; raises DeviceError with the driver's own word for a failure."""
    code, *values = result
    if int(code) != 0:
        raise DeviceError("the CUDA driver", f"it answered {code.name}", "check the driver with nvidia-smi")
    return values[0] if len(values) == 1 else tuple(values) or None


def card_at(index: int) -> Card:
    """Return a usable card; raises DeviceError with the reason where there is none."""
    reason = why_no_cuda()
    if reason is not None:
        raise DeviceError(f"device cuda:{index}", reason, "use host, or install the extra [cuda] on a machine with a card")
    cards = find_cards()
    if not 0 <= index < len(cards):
        raise DeviceError(f"device cuda:{index}", f"there are {len(cards)} cards", "use a lower number, or host")
    if cards[index].refusal is not None:
        raise DeviceError(f"device cuda:{index} ({cards[index].name})", cards[index].refusal, "use another card, or host")
    return cards[index]
