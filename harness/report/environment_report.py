"""The environment on stdout, as lines or as JSON."""

import json
from collections.abc import Mapping


def print_environment(facts: Mapping[str, str], as_json: bool) -> None:
    """Print name and value of every fact."""
    if as_json:
        print(json.dumps(dict(facts), indent=1))
        return
    width = max(map(len, facts)) + 2
    for name, value in facts.items():
        print(f"{name:<{width}}{value}")
