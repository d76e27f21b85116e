#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing (Debian 12; as root or with sudo), builds the program, and prints the longest context of
# every method for Llama-3-8B on one node of eight H100. Arguments replace the default question:
#   ./quickstart.sh plan --method upipe --context 3M
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=.ci/steps.sh
source .ci/steps.sh

# Tests, shells to complete in, benchmarks and linters are for check.sh.
step "install packages" install_packages '^(doctest|librapidcheck|libbenchmark|chromium|zsh|fish|groff|man-db|clang)'
step "configure" cmake --preset release
step "build" cmake --build --preset release --parallel "$(jobs)"

if (($# == 0)); then set -- max-context; fi
build/release/headroom "$@"
