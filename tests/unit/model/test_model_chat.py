"""Chat templates: the file's, the default, and what they refuse."""

import pytest

from strata.errors import RequestError
from strata.model.chat import DEFAULT_TEMPLATE, KEY, read_chat_template
from strata.model.files import open_model
from strata.model.keys import Key, Keys
from tests.unit.model.damage import refusal
from tests.unit.model.fixture_files import MAIN

TALK = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "hello\n"},
    {"role": "user", "content": " {{ 7 * 7 }} <b>"},
]
RENDERED = (
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nhello\n<|im_end|>\n"
    "<|im_start|>user\n {{ 7 * 7 }} <b><|im_end|>\n"
)


def template(source=None):
    entries = {} if source is None else {KEY: Key(KEY, "text", lambda: source)}
    return read_chat_template(Keys(entries, "model.gguf"))


@pytest.fixture(params=["of the fixture's file", "default"])
def either(request):
    return template() if request.param == "default" else read_chat_template(open_model(MAIN).keys)


def test_messages_become_turns_with_an_opening_for_the_answer(either):
    assert either.render(TALK) == RENDERED + "<|im_start|>assistant\n"


def test_the_opening_can_be_left_out(either):
    assert either.render(TALK, add_generation_prompt=False) == RENDERED


def test_the_files_own_template_is_used():
    assert template("{% for m in messages %}[{{ m.role }}]{% endfor %}").render(TALK) == "[user][assistant][user]"
    assert template().source == DEFAULT_TEMPLATE != read_chat_template(open_model(MAIN).keys).source


def test_lines_that_hold_only_a_tag_leave_no_blank_line():
    source = "{% for m in messages %}\n    {% if m.role == 'user' %}\n{{ m.content }}\n    {% endif %}\n{% endfor %}"
    assert template(source).render([{"role": "user", "content": "x"}]) == "x\n"


def test_further_variables_reach_the_template():
    assert template("{{ enable_thinking }}").render(TALK, enable_thinking=True) == "True"


@pytest.mark.parametrize(
    ("messages", "what"),
    [
        (["hi"], "messages[0]"),
        ([{"role": "user"}], "messages[0].content=None"),
        ([TALK[0], {"role": 3, "content": "x"}], "messages[1].role=3"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content=['x']"),
    ],
)
def test_malformed_messages_are_named(either, messages, what):
    with pytest.raises(RequestError) as caught:
        either.render(messages)
    assert caught.value.what == what and "\n" not in str(caught.value)


def test_a_template_can_refuse_a_conversation():
    refuse = "{{ raise_exception('a system message\nmust come first') }}"
    source = f"{{% if messages[0].role != 'system' %}}{refuse}{{% endif %}}"
    with pytest.raises(RequestError) as caught:
        template(source).render(TALK)
    assert "refuses them: a system message must come first" in caught.value.why


@pytest.mark.parametrize(
    "source",
    ["{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}", "{{ messages[0].missing.deeper }}", "{{ 1 / 'a' }}"],
)
def test_a_template_cannot_leave_its_sandbox_or_fail_with_a_traceback(source):
    with pytest.raises(RequestError, match="the chat template refuses them"):
        template(source).render(TALK)


def test_a_broken_template_is_refused_when_it_is_read():
    error = refusal(lambda: template("{% for m in messages %}"))
    assert error.what == f"key {KEY}" and "not a Jinja template" in error.why
