"""What the documents say is what the project does: commands, help texts, links, rooms."""

import re
import shlex

import pytest

from harness import fresh
from harness.cli.main import build_parser as harness_parser
from tests.repo.commands_page import PAGE, page
from tests.repo.source import ROOT, modules

README = ROOT / "README.md"
CI = ROOT / ".ci" / "run"
FRESH = "python3 -m harness.fresh "
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


def readme_commands() -> list[str]:
    """The commands of README's first block of shell code."""
    block = re.search(r"```(?:sh|bash|shell)\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    return [line.partition("#")[0].strip() for line in block[1].splitlines() if line.strip()]


def ci_steps() -> list[str]:
    """The commands that .ci/run takes as steps, in order."""
    lines = [line.strip() for line in CI.read_text(encoding="utf-8").splitlines()]
    return [line.removeprefix("step ") for line in lines if line.startswith("step ")]


def test_ci_begins_with_exactly_the_two_commands_of_the_readme():
    assert ci_steps()[:2] == readme_commands() and len(readme_commands()) == 2


def test_what_ci_runs_beside_them_needs_more_or_is_a_command_that_can_be_read():
    for step in ci_steps()[2:]:
        if not step.startswith(f"{FRESH}test --with "):
            program, *arguments = shlex.split(step)
            assert program == ".venv/bin/strata-harness"
            harness_parser().parse_args(arguments)


@pytest.mark.parametrize("command", readme_commands())
def test_a_readme_command_is_one_that_exists(command):
    words = shlex.split(command)
    assert words[:3] == ["python3", "-m", "harness.fresh"]
    assert words[3] in fresh.COMMANDS


def test_the_page_of_commands_is_what_the_programs_print():
    assert PAGE.read_text(encoding="utf-8") == page(), "write it again: python -m tests.repo.commands_page"


@pytest.mark.parametrize("document", [README, *sorted((ROOT / "docs").glob("*.md"))], ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(document):
    targets = [target for target in LINK.findall(document.read_text(encoding="utf-8")) if "://" not in target]
    assert [target for target in targets if not (document.parent / target).exists()] == []


def test_the_readme_maps_every_room():
    text = README.read_text(encoding="utf-8")
    filled = [module for module in modules("strata", "harness") if module.tree.body and len(module.path.parts) > 2]
    rooms = {"/".join(module.name.split(".")[:2]) for module in filled}
    assert [room for room in sorted(rooms) if f"`{room}/`" not in text] == []


def test_every_page_of_docs_is_linked_from_the_readme():
    linked = {target for target in LINK.findall(README.read_text(encoding="utf-8"))}
    assert [path.name for path in (ROOT / "docs").glob("*.md") if f"docs/{path.name}" not in linked] == []
