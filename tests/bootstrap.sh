#!/usr/bin/env bash
# Make .venv from the lock files. Needs Python 3.11 or later and the package index, nothing else. Downloads are tried again
# (tests/downloads.py).
set -euo pipefail
cd "$(dirname "$0")/.."
start=$SECONDS
trap '[ $? = 0 ] || echo "bootstrap: failed, see above; to go on: make venv" >&2' EXIT
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed; $python is $("$python" -V 2>&1). Set PYTHON=/path/to/python3.11" >&2; exit 1; }
download() { "$python" tests/downloads.py "$@"; }
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  echo "bootstrap: installing python3-venv (Debian keeps it apart)"
  download apt-get update -qq -o APT::Update::Error-Mode=any || true  # another source of this machine may be down
  download apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
fi
export VIRTUAL_ENV=$PWD/.venv
[ -x .venv/bin/python ] || "$python" -m venv .venv
echo "bootstrap: installing the locked Python packages into .venv (torch is large; about a minute the first time)"
[ -x .venv/bin/uv ] || download .venv/bin/python -m pip install --quiet --require-hashes -r requirements/bootstrap.txt
# Compiled, as in the images: where Python writes no bytecode itself, each start of an engine compiles 2,200 modules (5 s).
download .venv/bin/uv pip sync --quiet --compile-bytecode --require-hashes --allow-empty-requirements requirements/bootstrap.txt requirements/native.txt requirements/dev.txt requirements/docs.txt
download .venv/bin/uv pip install --quiet --no-deps -e fit -e verdicts -e operator -e probe -e gateway -e server -e cli -e batch
# The server runs without its CPU kernels, only slower.
if [ "$(uname -m)" = x86_64 ] && command -v g++ >/dev/null; then
  echo "bootstrap: compiling the server's CPU kernels"
  # With the locked setuptools; an isolated build would fetch one that no lock names.
  .venv/bin/uv pip install --quiet --no-deps --no-build-isolation -e server/native
else
  echo "bootstrap: without the server's CPU kernels, which need g++ on x86_64"
fi
touch .venv/.stamp
echo "bootstrap: ready in $((SECONDS - start)) s"
