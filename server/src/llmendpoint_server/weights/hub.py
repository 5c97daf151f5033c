"""Downloads models from a hub with Hugging Face's API, at HF_ENDPOINT, into its cache, under HF_HOME."""

from __future__ import annotations

import os
from pathlib import Path

import structlog

from llmendpoint_server.errors import BadConfiguration, ModelNotFound, ModelUnavailable

WANTED = ("*.json", "*.safetensors", "*.jinja", "tokenizer.model", "*.txt")
"""No *.bin, *.pt or *.py: pickles and code are not loaded."""
ENVIRONMENT = {
    # The image sets it to 1 so that nothing calls the hub unintentionally. This download calls it.
    "HF_HUB_OFFLINE": "0",
    # Progress bars would stand between the JSON lines of the log.
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}


def download(repository: str, revision: str | None) -> Path:
    """Download `org/name` at a commit; returns the folder. Raises ModelNotFound, ModelUnavailable, BadConfiguration."""
    if repository.count("/") != 1 or "@" in repository:
        raise BadConfiguration(
            f"--model hf://{repository}: write hf://<organisation>/<name>, and its commit as --revision."
        )
    os.environ.update(ENVIRONMENT)  # the library reads it once, at its import
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    os.environ["HF_HUB_OFFLINE"] = "1"  # for the engine process: it gets a folder, and calls no hub
    where = f"--model hf://{repository} at {revision or 'main'}"
    try:
        folder = snapshot_download(repository, revision=revision, allow_patterns=list(WANTED))
    except RevisionNotFoundError as error:
        raise ModelNotFound(f"{where}: the model has no such commit or branch.") from error
    except RepositoryNotFoundError as error:
        raise ModelNotFound(
            f"{where}: the hub has no such model, or it is private and HF_TOKEN is not set."
        ) from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise ModelUnavailable(f"{where}: the hub cannot be read: {error}") from error
    structlog.get_logger().info("model downloaded", repository=repository, commit=Path(folder).name)
    return Path(folder)
