"""`strata run`: one prompt, its continuation as it comes, and how fast that was."""

import argparse
import sys
from pathlib import Path

from strata.cli.draft_flags import add_sampling_flags, sampling_of
from strata.cli.engine_flags import add_engine_flags, settings_of, whole_numbers
from strata.cli.failures import CANNOT
from strata.cli.log_lines import log_lines
from strata.cli.progress import ProgressLine
from strata.errors import UsageError

SUMMARY = "Continue one prompt and print the text as it comes."
USAGE = "(--prompt TEXT | --prompt-file PATH | --prompt-ids LIST) [options]"
PREFILL = "256"
"""Prompt rows read at once: small enough for the progress line to move; any number gives the same bits."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="TEXT", help="the prompt; special tokens written out in it count as such")
    prompt.add_argument("--prompt-file", metavar="PATH", help="a UTF-8 file that holds it, or - for stdin")
    prompt.add_argument("--prompt-ids", metavar="LIST", help="its token ids, separated by commas")
    parser.add_argument("--chat", action="store_true", help="take the prompt as a user's message, through the model's chat template")
    parser.add_argument("--max-new", type=int, default=64, metavar="N", help="tokens to emit at most (default: 64)")
    add_sampling_flags(parser)
    add_engine_flags(parser, PREFILL)


def execute(options: argparse.Namespace) -> int:
    """Run the command; returns its exit code."""
    progress = ProgressLine()
    progress.show("loading")
    from strata.batch.engine import Engine
    from strata.batch.requests import Request
    from strata.model.model import load_model
    from strata.model.tokenizer import read_tokenizer

    settings, sampling = settings_of(options), sampling_of(options)
    model = load_model(options.model)
    tokenizer = read_tokenizer(model.files.keys)
    prompt = _prompt(options, model, tokenizer)
    progress.clear()
    with log_lines(), Engine(model, settings) as engine:
        run = engine.start([Request(prompt, options.max_new, frozenset(model.config.end_token_ids), sampling=sampling)])
        progress.show("preparing kernels (minutes the first time, later under a second)")
        engine.score(prompt[:1])
        _follow(run, tokenizer, len(prompt), progress)
        batch = run.batch()
        _tell_logprobs(batch.answers[0])
        return _finish(batch, len(prompt))


def _prompt(options: argparse.Namespace, model, tokenizer) -> tuple[int, ...]:
    if options.prompt_ids is not None:
        if options.chat:
            raise UsageError("--chat", "it makes a prompt from text, and --prompt-ids gives none", "use one of the two")
        return whole_numbers("prompt_ids", options.prompt_ids)
    text = options.prompt if options.prompt_file is None else _read_text(options.prompt_file)
    if not text:
        raise UsageError("prompt=''", "there is no text to continue", "give at least one character")
    if options.chat:
        from strata.model.chat import read_chat_template

        text = read_chat_template(model.files.keys).render([{"role": "user", "content": text}])
    return tuple(tokenizer.encode(text))


def _read_text(path: str) -> str:
    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return content.decode("utf-8")
    except OSError as error:
        raise UsageError(f"prompt_file={path}", error.strerror or str(error), "name a readable file") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"prompt_file={path}", f"byte {error.start} is not UTF-8", "convert the file") from error


def _follow(run, tokenizer, n_prompt: int, progress: ProgressLine) -> None:
    """Drive the run: the progress line while the prompt is read, then the text."""
    from strata.model.tokenizer import Decoder

    decoder = Decoder(tokenizer, skip_special=True)
    progress.show(f"reading 0 of {n_prompt} tokens")
    for step in run.steps():
        if not step.emitted:
            progress.show(f"reading {step.position} of {n_prompt} tokens")
            continue
        progress.clear()
        for emitted in step.emitted:
            sys.stdout.write(decoder.push(emitted.pick))
        sys.stdout.flush()
    progress.clear()
    sys.stdout.write(decoder.finish() + "\n")
    sys.stdout.flush()


def _tell_logprobs(answer) -> None:
    """Print each token's log probability and its alternatives, where they were asked for."""
    for emitted in answer.emitted:
        if emitted.logprob is not None:
            others = ", ".join(f"{token} ({logprob:.4f})" for token, logprob in emitted.alternatives)
            print(f"strata: token {emitted.pick} logprob {emitted.logprob:.4f}{': ' + others if others else ''}", file=sys.stderr)


def _finish(batch, n_prompt: int) -> int:
    answer = batch.answers[0]
    if answer.finish == "error":
        print(f"strata: error: {answer.error}", file=sys.stderr)
        return CANNOT
    n_decoded = max(0, len(answer.tokens) - 1)
    drafted, offered = batch.counters["drafts_accepted"], batch.counters["drafts_offered"]
    parts = [_rate("read", n_prompt, batch.read_seconds), _rate("decoded", n_decoded, batch.decode_seconds), f"ended by {answer.finish}"]
    parts += [f"{drafted} of {offered} drafts accepted"] if offered else []
    parts += [f"seed {answer.seed}"] if answer.seed else []
    print(f"strata: {', '.join(part for part in parts if part)}", file=sys.stderr)
    return 0


def _rate(what: str, n_tokens: int, seconds: float) -> str:
    return f"{what} {n_tokens} tokens in {seconds:.2f} s ({n_tokens / seconds:.0f} tokens/s)" if n_tokens and seconds else ""
