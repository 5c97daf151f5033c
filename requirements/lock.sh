#!/usr/bin/env bash
# Resolve every lock file: pinned, with hashes, without download addresses, for any platform and any mirror.
set -euo pipefail
cd "$(dirname "$0")/.."
UV=${UV:-.venv/bin/uv}
compile() { "$UV" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-emit-package llmendpoint-fit --no-emit-package llmendpoint-verdicts "$@"; }
echo 'uv>=0.13,<0.14' | compile - -o requirements/bootstrap.txt
compile requirements/dev.in operator/pyproject.toml probe/pyproject.toml gateway/pyproject.toml server/pyproject.toml cli/pyproject.toml batch/pyproject.toml --extra envoy -o requirements/dev.txt
# The images' locks take the versions that the tests run with.
# The operator's image holds the probe, too.
compile operator/pyproject.toml probe/pyproject.toml -c requirements/dev.txt -o requirements/operator.txt
for part in gateway server cli batch; do
  compile "$part/pyproject.toml" -c requirements/dev.txt -o "requirements/$part.txt"
done
# What compiles the CPU kernels.
echo 'setuptools>=80' | compile - -c requirements/dev.txt -o requirements/native.txt
compile requirements/simulator.in -c requirements/dev.txt -o requirements/simulator.txt
compile gateway/pyproject.toml --extra envoy -c requirements/dev.txt -o requirements/gateway-envoy.txt
compile requirements/docs.in -c requirements/dev.txt -o requirements/docs.txt
compile requirements/release.in -o requirements/release.txt
compile requirements/clients.in -o requirements/clients.txt
