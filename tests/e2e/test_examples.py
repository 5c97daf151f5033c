"""README.md: the manifests in examples/ that it and the guides name are taken by a real API server as they stand."""

import pytest

from tests.demo.product import ROOT
from tests.e2e.product import Product

EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.yaml"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_api_server_takes_an_example_and_knows_all_its_fields(product: Product, name: str) -> None:
    said = product.cluster.kubectl("apply", "--dry-run=server", "-f", str(ROOT / "examples" / name))
    assert "created (server dry run)" in said
