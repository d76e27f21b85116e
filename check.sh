#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that has to hold before a change goes in: builds without a warning, all tests, formatting, lint.
# Silent steps; at the end the summary of ctest and one line.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=.ci/steps.sh
source .ci/steps.sh

build=build/check

# Tracked files with these endings, one a line; from an unpacked archive, all of them.
sources() {
    git -c safe.directory='*' ls-files -- "${@/#/*.}" 2>/dev/null ||
        find . -path ./build -prune -o -type f -regex ".*\\.\($(printf '%s\\|' "$@")x\)" -print
}

format() { sources cpp hpp cu cuh | xargs -d '\n' -P "$(jobs)" -n 16 clang-format --dry-run -Werror; }

# What the build compiles of ours, without tests, generated sources (below build/) and CUDA, which clang-tidy cannot read.
lint() {
    sed -n 's/^ *"file": "\(.*\.cpp\)",\{0,1\}$/\1/p' "$build/compile_commands.json" |
        grep -v -e /build/ -e /tests/ -e /calibrate/cuda/ |
        xargs -d '\n' -P "$(jobs)" -n 1 clang-tidy --quiet -p "$build" --extra-arg=-Wno-unknown-warning-option 2>&1 |
        { grep -v 'warnings\{0,1\} .*generated' || true; }
}

test_all() { ctest --test-dir "$build" --parallel "$(jobs)" --output-on-failure --output-junit junit.xml; }

step "install packages" install_packages
step "configure" cmake --preset check
step "build" cmake --build --preset check --parallel "$(jobs)"
failed=()
step "formatting (clang-format -i repairs it)" format || failed+=(formatting)
STEP_TAIL=80 step "lint" lint || failed+=(lint)
if test_all >"$steps_log/ctest" 2>&1; then
    tail -n 5 "$steps_log/ctest"
else
    cat "$steps_log/ctest"
    failed+=(tests)
fi
if ((${#failed[@]} > 0)); then
    say "failed: ${failed[*]}"
    exit 1
fi
echo "all checks passed"
