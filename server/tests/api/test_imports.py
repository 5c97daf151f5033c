"""docs/decisions/parts-share-no-code.md: the API process of the server imports neither torch nor transformers."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import llmendpoint_server.__main__
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "transformers", "safetensors", "numpy"}))
"""


def test_everything_the_api_process_imports_leaves_torch_and_transformers_out() -> None:
    output = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert output.stdout.strip() == ""
