"""Where the small trained model lies."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "fixtures" / "strata-mini-mix"
MAIN = FOLDER / "strata-mini-mix.gguf"
DRAFT = FOLDER / "strata-mini-mix-mtp.gguf"
