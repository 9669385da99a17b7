"""Chat messages to prompt text, by the template that a model's file carries.

The template is a Jinja program from a file, so it runs in a sandbox without access to anything.  A file without one
gets the format the models were trained on: `<|im_start|>role\\ncontent<|im_end|>\\n` per message.  Does not know:
tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strata.errors import ModelFileError, RequestError
from strata.model.keys import Keys

KEY = "tokenizer.chat_template"
DEFAULT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

Message = Mapping[str, Any]
"""A message: `role` and `content`, both text; other entries are handed to the template as they are."""


@dataclass(frozen=True, slots=True, eq=False)
class ChatTemplate:
    """A compiled chat template."""

    source: str
    _template: Any

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = True, **variables: Any) -> str:
        """The prompt for `messages`; raises RequestError for a malformed message or one the template refuses."""
        import jinja2

        for index, message in enumerate(messages):
            _check_message(index, message)
        try:
            return self._template.render(
                messages=list(messages), add_generation_prompt=add_generation_prompt, **variables
            )
        except (jinja2.TemplateError, TypeError, ValueError, OverflowError) as error:
            raise RequestError(
                f"messages ({len(messages)})",
                f"the chat template refuses them: {_one_line(error)}",
                "change the messages",
            ) from error


def read_chat_template(keys: Keys) -> ChatTemplate:
    """Compile a model's chat template; raises ModelFileError when it is not a sound template."""
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    source = keys.text(KEY, DEFAULT_TEMPLATE)
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = _raise_exception
    try:
        return ChatTemplate(source, environment.from_string(source))
    except jinja2.TemplateError as error:
        why = f"it is not a Jinja template: {_one_line(error)}"
        raise ModelFileError(f"key {KEY}", why, "convert the model again") from error


def _check_message(index: int, message: Message) -> None:
    if not isinstance(message, Mapping):
        raise RequestError(f"messages[{index}]", "it is not an object", "send role and content")
    for name in ("role", "content"):
        if not isinstance(message.get(name), str):
            raise RequestError(f"messages[{index}].{name}={message.get(name)!r}", "it is not text", "send a string")


def _raise_exception(text: str) -> None:
    """What templates call to refuse a conversation."""
    raise ValueError(text)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
