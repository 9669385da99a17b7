"""What every stress is: something that stands before an executor or a draft layer and passes everything through."""


class Stressed:
    """Something behind a stress: attributes are read from and written to it itself."""

    def __init__(self, inner) -> None:
        object.__setattr__(self, "_inner", inner)

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._inner, name, value)
